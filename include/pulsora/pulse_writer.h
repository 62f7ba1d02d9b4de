#pragma once

/// Writes of arrays by counted pulses towards a target.
#include "pulsora/detail/transfer/pulse_writer.h"
