#pragma once

#include "pulsora/detail/devices/exp_step.h"
