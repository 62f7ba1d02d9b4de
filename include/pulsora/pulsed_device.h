#pragma once

#include "pulsora/detail/array/pulsed_device.h"
