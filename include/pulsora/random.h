#pragma once

/// Random numbers by key and position (Philox), with equal bits on every backend.
#include "pulsora/detail/numerics/random.h"
