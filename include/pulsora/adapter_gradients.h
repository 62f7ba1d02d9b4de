#pragma once

#include "pulsora/detail/lowrank/adapter_gradients.h"
