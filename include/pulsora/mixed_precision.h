#pragma once

/// `MixedPrecisionParams`: settings of cells that follow a digital weight.
#include "pulsora/detail/compounds/mixed_precision_parameters.h"
