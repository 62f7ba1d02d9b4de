#pragma once

/// `PulsedDevice`: one array of cells of a device model.
#include "pulsora/detail/array/pulsed_device.h"
