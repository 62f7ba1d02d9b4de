#pragma once

#include "pulsora/detail/devices/linear_response.h"
