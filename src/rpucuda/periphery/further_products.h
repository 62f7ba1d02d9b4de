#pragma once

#include "numerics/random.h"
#include "periphery/line_formulas.h"

// Functors that make the factors of a read's further products: magnitudes, late and squared inputs,
// and weights at negative inputs.

namespace pulsora {

/// Writes |w| of a matrix in any layout, without gaps.
struct Magnitudes {
  MatrixView<const float> from;
  float *to;

  PULSORA_HD void operator()(int64_t i) const { to[i] = abs(from(i / from.cols, i % from.cols)); }
};

/// The form of the converted inputs u for a further product: |u|, u lateness(j), or u^2.
enum class InputForm { Magnitude, Late, Square };
struct ReformInput {
  const float *from;
  float *to;
  int64_t n;
  InputForm form;

  PULSORA_HD void operator()(int64_t i) const {
    const float u = from[i];
    const float late = u * lateness(i % n, n);
    to[i] = form == InputForm::Magnitude ? abs(u) : (form == InputForm::Late ? late : u * u);
  }
};

/// Fixed relative deviation with which cell i of an array is read at negative inputs. Cells are
/// numbered as they lie in the array [d, x], whichever direction is read.
struct ReadAsymmetry {
  RandomKey key;
  uint32_t index;
  float std;
  MatrixView<float> to;  // [out, in] of this direction
  bool transposed;

  PULSORA_HD void operator()(int64_t i) const {
    const int64_t line = i / to.cols;
    const int64_t j = i % to.cols;
    const int64_t cell = transposed ? j * to.rows + line : i;
    const Philox4 r = draw(key, Purpose::IoConstruct, static_cast<uint64_t>(cell), 0, index);
    to(line, j) = std * normalPair(r.v[0], r.v[1]).z0;
  }
};

/// Change of the weights at negative inputs: weight times deviation.
struct ReadDeviation {
  MatrixView<const float> weights;
  const float *asymmetry;
  float *to;

  PULSORA_HD void operator()(int64_t i) const {
    to[i] = weights(i / weights.cols, i % weights.cols) * asymmetry[i];
  }
};

}  // namespace pulsora
