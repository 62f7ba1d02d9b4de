#pragma once

#include "pulsora/detail/devices/range_response.h"
