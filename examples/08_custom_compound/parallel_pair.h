#pragma once

#include <pulsora/compound.h>

namespace pulsora {

/// Two arrays whose outputs are added: W = share W_0 + (1 - share) W_1. Both follow the gradient.
struct ParallelPairParams : CompoundBase {
  static constexpr const char *kKind = "parallel_pair";
  static constexpr const char *kName = "ParallelPairConfig";
  static constexpr const char *kDoc =
      "Two arrays in parallel, W = share W_0 + (1 - share) W_1, that both follow the gradient.";

  DeviceParams first;
  DeviceParams second;
  float share = 0.5f;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = ParallelPairParams;
    f(&P::first, "first", anyNumber(), "", "Device model of W_0 [d, x].");
    f(&P::second, "second", anyNumber(), "", "Device model of W_1 [d, x].");
    f(&P::share, "share", between(0.0, 1.0), "relative", "Weight of W_0 in the sum.");
  }
  CompoundFacts facts() const { return {"first"}; }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
};

/// A functor of this compound: first(i) = share first(i) + (1 - share) second(i). A plain struct
/// whose call operator runs on the CPU and, through parallel_pair.cu, on a GPU.
struct Blend {
  float share;
  const float *second;
  MatrixView<float> first;

  PULSORA_HD void operator()(int64_t i) const {
    float &value = first(i / first.cols, i % first.cols);
    value = share * value + (1.0f - share) * second[i];
  }
};

}  // namespace pulsora
