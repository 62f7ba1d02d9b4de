#pragma once

/// Device models compiled from a text at run time.
#include "pulsora/detail/runtime/device_source.h"
