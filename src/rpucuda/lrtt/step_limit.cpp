#include "lrtt/step_limit.h"

#include <vector>

#include "core/backend.h"
#include "core/buffer.h"

namespace pulsora {

void StepLimit::apply(const Context &context, const StepResponse &response, double limit,
                      MatrixView<const float> in, MatrixView<const float> out, MatrixView<float> g,
                      MatrixView<float> e) {
  const int64_t samples = in.rows;
  reserve(context, samples);
  double *sums = squares_.data();
  for (const MatrixView<const float> &each :
       {in, out, MatrixView<const float>(g), MatrixView<const float>(e)}) {
    sumRows(context, samples, each.cols, SquareTerm{each}, sums);
    sums += samples;
  }
  forEach(context, g.size(),
          StepLimiter{response, limit, samples, g.cols, squares_.data(), g.data, e.data});
}

StepLimit::Effect StepLimit::effect(const Context &context, const StepResponse &response,
                                    double limit, int64_t samples) const {
  std::vector<double> squares(static_cast<size_t>(4 * samples));
  detail::copyToHost(context, squares.data(), squares_.data(), squares.size() * sizeof(double));
  const StepLimiter limiter{response, limit, samples, 1, squares.data(), nullptr, nullptr};
  int64_t limited = 0;
  double sum = 0.0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const double factor = limiter.factorOf(sample);
    limited += factor < 1.0 ? 1 : 0;
    sum += factor;
  }
  const auto count = static_cast<double>(samples);
  return {static_cast<double>(limited) / count, sum / count};
}

}  // namespace pulsora
