#pragma once

#include "pulsora/detail/array/device_model.h"
#include "pulsora/detail/array/make_device_model.h"
