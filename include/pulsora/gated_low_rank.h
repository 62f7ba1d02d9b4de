#pragma once

#include "pulsora/detail/lowrank/gated_low_rank.h"
