#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/context.h"
#include "core/view.h"
#include "lrtt/settings.h"
#include "numerics/random.h"

namespace pulsora {

/// Memory for rows that the host works on.
class HostRows {
 public:
  void reserve(int64_t numbers) {
    values.resize(static_cast<size_t>(numbers));
    precise.resize(static_cast<size_t>(numbers));
  }

  std::vector<float> values;
  std::vector<double> precise;
};

/// Inputs of a scheme that draws B: random numbers, given directions, and working memory.
struct ReinitSource {
  RandomKey key;
  uint64_t number;                  ///< of the re-initialisation
  MatrixView<const float> vectors;  ///< directions of LRTTAdapter::setReinitVectors() [K, inputs]
  HostRows &work;
};

/// One scheme of lrtt.reinit: how B is drawn, and the effect of a transfer on A and B.
struct ReinitScheme {
  /// Effect of a transfer on A and B: none; or A becomes 0, and B stays, shrinks, or is drawn.
  enum class AfterTransfer { Nothing, KeepB, DecayB, DrawB };

  /// Draws B [K, inputs], gapless: at the start, and after transfers (DrawB).
  void (*draw)(const Context &context, const LRTTSettings &settings, const ReinitSource &source,
               MatrixView<float> out);
  AfterTransfer after;
  bool needsVectors = false;  ///< directions come from LRTTAdapter::setReinitVectors()
  bool worksOnHost = false;   ///< draw() runs on the host and waits for the GPU
};

/// The scheme for `reinit`: a row of the table in reinit.cpp.
const ReinitScheme &reinitScheme(Reinit reinit);

/// Random rows with out out^T = rowNorm^2 I: the rows of drawNormalRows (linalg/initialise.h), made
/// orthogonal by Gram-Schmidt in double precision on the host, in a fixed order of operations.
/// Needs rows <= cols; `out` is gapless. Here and below, `work` grows to out.size() numbers.
void drawOrthogonalRows(const Context &context, RandomKey key, uint64_t number, float rowNorm,
                        MatrixView<float> out, HostRows &work);

/// out = vectors, each row scaled to norm `rowNorm`; a row of zeros stays. Both are gapless.
void scaleRows(const Context &context, MatrixView<const float> vectors, float rowNorm,
               MatrixView<float> out, HostRows &work);

}  // namespace pulsora
