#pragma once

#include "pulsora/detail/devices/pow_step.h"
