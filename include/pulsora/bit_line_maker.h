#pragma once

/// Pulse trains made from x and d.
#include "pulsora/detail/pulses/bit_line_maker.h"
