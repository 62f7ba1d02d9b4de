#pragma once

/// The gated low-rank update of a batch and its gradients, in 16 and 32 bits.
#include "pulsora/detail/lowrank/gated_low_rank.h"
