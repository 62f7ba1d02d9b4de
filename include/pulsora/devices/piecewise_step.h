#pragma once

#include "pulsora/detail/devices/piecewise_step.h"
