#pragma once

#include "pulsora/detail/devices/linear_step.h"
