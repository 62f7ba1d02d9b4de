#pragma once

#include "pulsora/detail/periphery/additive_reads.h"
