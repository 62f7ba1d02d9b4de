#pragma once

#include "pulsora/detail/pulses/bit_line_maker.h"
