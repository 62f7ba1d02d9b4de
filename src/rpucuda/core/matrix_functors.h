#pragma once

#include "core/view.h"

// The element functors of plain matrices.

namespace RPU {

/// A copy between matrices of one shape and any layout.
struct ElementCopier {
  MatrixView<const float> from;
  MatrixView<float> to;

  RPU_HD void operator()(int64_t i) const {
    to(i / from.cols, i % from.cols) = from(i / from.cols, i % from.cols);
  }
};

}  // namespace RPU
