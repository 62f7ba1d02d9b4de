#pragma once

/// The weight to which alternating pulses up and down lead.
#include "pulsora/detail/devices/symmetric_point.h"
