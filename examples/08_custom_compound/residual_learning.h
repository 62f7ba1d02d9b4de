#pragma once

#include <pulsora/compound.h>
#include <pulsora/math.h>

namespace pulsora {

/// Residual learning: W = W_m + gamma P. The array P, the residual, follows the gradient; after
/// each mini-batch beta P is added to a digital buffer H, of which whole pulses go to W_m. Rule: Wu
/// et al., arXiv 2502.06309 (2025); the buffer is that of Tiki-Taka v2.
struct ResidualLearningParams : CompoundBase {
  static constexpr const char *kKind = "residual_learning";
  static constexpr const char *kName = "ResidualLearningConfig";
  static constexpr const char *kDoc =
      "Residual learning: W = W_m + gamma P, where the array P follows the gradient, and W_m "
      "follows P.";

  DeviceParams main;
  DeviceParams residual;
  float gamma = 0.5f;
  float beta = 0.1f;
  int most_pulses = 31;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = ResidualLearningParams;
    f(&P::main, "main", anyNumber(), "", "Device model of W_m [d, x], which holds weights.");
    f(&P::residual, "residual", anyNumber(), "", "Device model of P [d, x], which learns.");
    f(&P::gamma, "gamma", nonNegative(), "relative", "Factor of P in the weight.");
    f(&P::beta, "beta", nonNegative(), "relative",
      "Part of P that is added to the buffer after each mini-batch.");
    f(&P::most_pulses, "most_pulses", between(1, 65536), "pulses",
      "Most pulses of a cell of W_m after a mini-batch; the rest stays in the buffer.");
  }
  CompoundFacts facts() const {
    CompoundFacts facts;
    facts.written = "main";
    facts.pulsesWritten = false;  // an update may leave W_m as it is
    return facts;
  }
  static std::vector<CompoundVariant> variants() {
    return {{"residual_fast", {{"beta", 2.0}, {"gamma", 1.5}, {"most_pulses", 3}}}};
  }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
};

/// A functor of this compound: adds beta P to the buffer, and takes whole pulses from it. Element i
/// is cell i % rows of column i / rows.
struct ResidualPulses {
  MatrixView<const float> residual;
  float beta;
  float step;  // change of W_m by a pulse
  float most;
  float *buffer;  // [cols, rows]
  float *pulses;
  const uint32_t *fault;  // Context::nonfiniteFlag: while it is set, nothing moves

  PULSORA_HD void operator()(int64_t i) const {
    if (fault && *fault) {
      pulses[i] = 0.0f;
      return;
    }
    const int64_t col = i / residual.rows;
    const float sum = pulsora::fma(beta, residual(i - col * residual.rows, col), buffer[i]);
    const float whole = pulsora::floor(pulsora::abs(sum) / step);
    const float count = pulsora::min(whole, most);
    pulses[i] = sum < 0.0f ? -count : count;
    buffer[i] = pulsora::fma(-pulses[i], step, sum);
  }
};

}  // namespace pulsora
