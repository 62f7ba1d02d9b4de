#pragma once

/// Addition of a sum of outer products to an array by pulse trains.
#include "pulsora/detail/transfer/pulse_transfer.h"
