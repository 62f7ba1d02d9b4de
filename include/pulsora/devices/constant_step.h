#pragma once

#include "pulsora/detail/devices/constant_step.h"
