#pragma once

/// `LRTTParams`: settings of the low-rank adapter with transfers (LRTT).
#include "pulsora/detail/lrtt/parameters.h"
