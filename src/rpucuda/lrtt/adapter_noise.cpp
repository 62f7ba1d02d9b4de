#include "lrtt/adapter_noise.h"

#include <vector>

#include "core/backend.h"
#include "linalg/math_util.h"

namespace pulsora {

AdapterNoise adapterNoise(const Context &context, const LRTTSettings &s, const AnalogRead &read,
                          MatrixView<const float> in, MatrixView<const float> inner,
                          const ArrayRead &second) {
  AdapterNoise noise;
  const IOParameters &io = read.parameters();
  const bool separate = s.params.forward_inject && s.params.inject_io == InjectIo::PerArray;
  if (!separate || io.is_perfect || io.out_noise == 0.0f) return noise;
  const ScaleRule rule = scaleRule(io);
  const std::vector<float> inHost = onHost(context, in);
  const std::vector<float> innerHost = onHost(context, inner);
  const auto squareScale = [&](const AnalogRead &of, const float *values) {
    double sum = 0.0;
    for (const LineRange &lines : of.inputs()) {
      const VectorView<const float> view{values + lines.first, lines.count, 1};
      const auto scale =
          static_cast<double>(noiseScale(rule, view, reducedRow<reduce::AbsLargest>(view)));
      sum += scale * scale;
    }
    return sum;
  };
  int64_t rows = 0;
  double ratios = 0.0;
  for (int64_t row = 0; row < in.rows; ++row) {
    const double plain = squareScale(read, inHost.data() + row * in.cols);
    if (plain == 0.0) continue;  // reads as exactly 0
    ratios += squareScale(second.read, innerHost.data() + row * inner.cols) / plain;
    ++rows;
  }
  if (rows == 0) return noise;
  double squares = 0.0;
  for (const float w : onHost(context, second.weights))
    squares += static_cast<double>(w) * static_cast<double>(w);
  const double alpha2 = static_cast<double>(s.alpha) * static_cast<double>(s.alpha);
  noise.first = alpha2 * squares / static_cast<double>(second.weights.rows);
  noise.second = alpha2 * ratios / static_cast<double>(rows);
  return noise;
}

}  // namespace pulsora
