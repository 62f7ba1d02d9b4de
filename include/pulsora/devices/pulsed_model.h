#pragma once

#include "pulsora/detail/devices/pulsed_model.h"
