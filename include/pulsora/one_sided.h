#pragma once

/// `OneSidedParams`: pairs of cells that are pulsed up alone.
#include "pulsora/detail/compounds/one_sided.h"
