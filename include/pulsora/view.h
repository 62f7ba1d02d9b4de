#pragma once

/// `MatrixView` and `rowMajor(data, rows, cols)`: matrices in your own memory, of any strides.
#include "pulsora/detail/core/container_views.h"
#include "pulsora/detail/core/view.h"
