#pragma once

#include "pulsora/detail/devices/symmetric_point.h"
