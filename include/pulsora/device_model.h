#pragma once

/// The registry of device models, and entries made from their structs.
#include "pulsora/detail/array/device_model.h"
#include "pulsora/detail/array/make_device_model.h"
