#pragma once

#include <type_traits>

#include "devices/pulsed_model.h"

// The rule by which a cell takes the n coincidences of one sample. It is the definition that every
// kernel, on every backend, must reproduce to the bit; kernels rearrange the loops around it, never
// the steps in it.

namespace pulsora {

namespace detail {
template <class Device, class = void>
struct NoPulseIsExact : std::false_type {};
template <class Device>
struct NoPulseIsExact<Device, std::void_t<decltype(Device::kNoPulseIsExact)>> : std::true_type {};
template <class Device, class = void>
struct HasClosedForm : std::false_type {};
template <class Device>
struct HasClosedForm<Device, std::void_t<decltype(&Device::pulses)>> : std::true_type {};
}  // namespace detail

/// Whether a model defines the closed form of several pulses.
template <class Device>
constexpr bool kHasClosedForm = detail::HasClosedForm<Device>::value;

/// Whether the closed form of no pulse (no noise) gives the weight itself, so that kernels need no
/// special case for it.
template <class Device>
constexpr bool kNoPulseIsExact = detail::NoPulseIsExact<Device>::value;

/// One pulse, then the bounds.
template <class Device>
PULSORA_HD float onePulse(float w, bool up, const typename Device::Response &r,
                          const typename Device::Params &p, float xi) {
  return clipWeight(Device::pulse(w, up, r, p, xi), r);
}

/// Pulses `first`, a multiple of 8, to last - 1 of those that sequentialPulses() takes, without
/// pulse 0.
template <class Device, class Key>
PULSORA_HD float laterPulses(float w, uint32_t first, uint32_t last, bool up,
                             const typename Device::Response &r, const typename Device::Params &p,
                             const Key &key, uint64_t cell, uint64_t sample) {
  Philox4 block{};
  for (uint32_t k = first; k < last; k += 2) {  // pulses k and k + 1
    if ((k & 7U) == 0) block = draw(key, Purpose::CyclePulse, cell, sample, k >> 3);
    const NormalPair pair = normalPair16(wordOf(block, (k & 7U) >> 1));
    if (k > 0) w = onePulse<Device>(w, up, r, p, pair.z0);
    if (k + 1 < last) w = onePulse<Device>(w, up, r, p, pair.z1);
  }
  return w;
}

/// n >= 1 pulses one after another, with the bounds after each. Pulse 0 takes the sample's own
/// normal `z`, that is normalOfSample(key, CycleNoise, cell, sample); pulse k >= 1 takes the normal
/// k % 8 of normal8(draw(key, CyclePulse, cell, sample, k / 8)).
template <class Device, class Key>
PULSORA_HD float sequentialPulses(float w, int n, bool up, const typename Device::Response &r,
                                  const typename Device::Params &p, float z, const Key &key,
                                  uint64_t cell, uint64_t sample) {
  w = onePulse<Device>(w, up, r, p, z);
  if (n == 1) return w;
  return laterPulses<Device>(w, 0, static_cast<uint32_t>(n), up, r, p, key, cell, sample);
}

/// n >= 1 pulses in closed form; `holds` tells whether the result may replace pulses one by one
/// (for n = 1 it always may).
template <class Device>
PULSORA_HD float closedPulses(float w, PulseSum n, bool up, const typename Device::Response &r,
                              const typename Device::Params &p, float z, bool &holds) {
  const Moments m = Device::pulses(w, n, up, r, p);
  holds = closedFormHolds(w, m, r, p);
  return clipWeight(pulsora::fma(m.sd, z, m.mean), r);
}

/// The rule: one coincidence is one pulse; several are taken in closed form where that holds, else
/// one by one. (The closed form of one pulse equals that pulse, to the bit.)
template <class Device, class Key>
PULSORA_HD float applyPulses(float w, PulseSum n, bool up, const typename Device::Response &r,
                             const typename Device::Params &p, float z, const Key &key,
                             uint64_t cell, uint64_t sample) {
  if (n.n == 0.0f) return w;
  if constexpr (kHasClosedForm<Device>) {
    bool holds = false;
    const float closed = closedPulses<Device>(w, n, up, r, p, z, holds);
    if (holds || n.n == 1.0f) return closed;
  }
  return sequentialPulses<Device>(w, static_cast<int>(n.n), up, r, p, z, key, cell, sample);
}

template <class Device, class Key>
PULSORA_HD float applyPulses(float w, int n, bool up, const typename Device::Response &r,
                             const typename Device::Params &p, float z, const Key &key,
                             uint64_t cell, uint64_t sample) {
  if (n == 0) return w;
  return applyPulses<Device>(w, pulseSum(static_cast<float>(n), p), up, r, p, z, key, cell, sample);
}

/// A part of applyPulses(): with `first` = 0 its beginning, or else pulses `first` and further of
/// those that are taken one by one, up to `most` at a time (both multiples of 8). Returns how many
/// of the n >= 1 pulses are taken then. `z` counts at the beginning only.
template <class Device, class Key>
PULSORA_HD int applyPart(float &w, int n, int first, int most, bool up,
                         const typename Device::Response &r, const typename Device::Params &p,
                         float z, const Key &key, uint64_t cell, uint64_t sample) {
  if (first == 0) {
    if constexpr (kHasClosedForm<Device>) {
      bool holds = false;
      const PulseSum sum = pulseSum(static_cast<float>(n), p);
      const float closed = closedPulses<Device>(w, sum, up, r, p, z, holds);
      if (holds || n == 1) {
        w = closed;
        return n;
      }
    }
    w = onePulse<Device>(w, up, r, p, z);
    if (n == 1) return n;
  }
  const int last = n - first < most ? n : first + most;
  w = laterPulses<Device>(w, static_cast<uint32_t>(first), static_cast<uint32_t>(last), up, r, p,
                          key, cell, sample);
  return last;
}

/// Whether applyPulses() takes n >= 1 pulses one by one.
template <class Device>
PULSORA_HD bool areOneByOne(float w, int n, bool up, const typename Device::Response &r,
                            const typename Device::Params &p) {
  if (n == 1) return false;
  if constexpr (kHasClosedForm<Device>) {
    const PulseSum sum = pulseSum(static_cast<float>(n), p);
    return !closedFormHolds(w, Device::pulses(w, sum, up, r, p), r, p);
  }
  return true;
}

/// Whether samples of up to `most` pulses may take closed forms, judged by their skewness alone.
template <class Device>
PULSORA_HD bool closedFormsUpTo(int most, const typename Device::Response &r,
                                const typename Device::Params &p) {
  const PulseSum n = pulseSum(static_cast<float>(most < 1 ? 1 : most), p);
  const float limit = skewnessLimit(p);
  return Device::pulses(0.0f, n, true, r, p).skewnessSquared < limit &&
         Device::pulses(0.0f, n, false, r, p).skewnessSquared < limit;
}

/// Weights that stay five standard deviations away from every bound during four samples of closed
/// forms, whatever the normals: sufficient for closedFormHolds() in each of them.
struct SafeRange {
  float perPulse;
  float low;
  float high;

  /// `reach` is the model's reach(): N pulses in four samples change the weight by less than reach
  /// (N + 5 sigma sqrt(4 N)), which lies below its tangent in N at N = 10.
  PULSORA_HD static SafeRange of(float reach, const PulsedResponse &r, const PulsedParams &p) {
    constexpr float kRounding = 2e-6f;  // of the weights on the way
    const float slack = kRounding * pulsora::max(pulsora::abs(r.w_max), pulsora::abs(r.w_min));
    const float margin = pulsora::fma(reach, 16.0f * p.dw_min_std, slack);
    return {reach * pulsora::fma(1.6f, p.dw_min_std, 1.0f), r.w_min + margin, r.w_max - margin};
  }
  PULSORA_HD bool holds(float w, float pulses) const {
    const bool below = pulsora::fma(perPulse, pulses, w) <= high;
    const bool above = pulsora::fma(-perPulse, pulses, w) >= low;
    return below & above;
  }
};

}  // namespace pulsora
