#pragma once

#include "pulsora/detail/runtime/device_source.h"
