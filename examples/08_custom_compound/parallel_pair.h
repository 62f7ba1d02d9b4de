#pragma once

#include "compounds/compound_model.h"

namespace RPU {

/// Two arrays whose outputs are added: W = W_0 + W_1. Each takes half of the gradient's pulses.
struct ParallelPairParams : CompoundBase {
  static constexpr const char *kKind = "parallel_pair";
  static constexpr const char *kName = "ParallelPairConfig";
  static constexpr const char *kDoc =
      "Two arrays in parallel, W = W_0 + W_1, that share the gradient.";

  DeviceParams first;
  DeviceParams second;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = ParallelPairParams;
    f(&P::first, "first", anyNumber(), "", "Device model of W_0 [d, x].");
    f(&P::second, "second", anyNumber(), "", "Device model of W_1 [d, x].");
  }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
};

}  // namespace RPU
