#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/context.h"
#include "core/view.h"
#include "numerics/random.h"

namespace pulsora {

/// Memory in which rows are worked on by the host.
class HostRows {
 public:
  void reserve(int64_t numbers) {
    values.resize(static_cast<size_t>(numbers));
    precise.resize(static_cast<size_t>(numbers));
  }

  std::vector<float> values;
  std::vector<double> precise;
};

/// Random rows with out out^T = rowNorm^2 I: the rows of drawNormalRows (linalg/initialise.h), made
/// orthogonal by Gram-Schmidt in double precision on the host, in a fixed order of operations.
/// Needs rows <= cols; `out` is gapless. Here and below, `work` has memory for out.size() numbers, or
/// gets it.
void drawOrthogonalRows(const Context &context, RandomKey key, uint64_t number, float rowNorm,
                        MatrixView<float> out, HostRows &work);

/// out = vectors, each row scaled to norm `rowNorm`; a row of zeros stays. Both are gapless.
void scaleRows(const Context &context, MatrixView<const float> vectors, float rowNorm,
               MatrixView<float> out, HostRows &work);

}  // namespace pulsora
