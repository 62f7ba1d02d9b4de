#pragma once

#include <type_traits>

#include "devices/pulse_rule.h"

// The symmetric point, to which pulses without information lead a cell: the weight at which its
// mean steps up and down are equal.

namespace pulsora {

namespace detail {
template <class Device, class = void>
struct StatesSymmetricPoint : std::false_type {};
template <class Device>
struct StatesSymmetricPoint<Device, std::void_t<decltype(&Device::symmetricPoint)>>
    : std::true_type {};
}  // namespace detail

/// Mean change of a weight w by a pulse up and one down, without bounds.
template <class Device>
PULSORA_HD float meanDrift(float w, const typename Device::Response &r,
                           const typename Device::Params &p) {
  return (Device::pulse(w, true, r, p, 0.0f) - w) + (Device::pulse(w, false, r, p, 0.0f) - w);
}

/// Whether the mean drift at weight w has the sign of `drift`, which is not 0.
template <class Device>
PULSORA_HD bool driftsLike(float drift, float w, const typename Device::Response &r,
                           const typename Device::Params &p) {
  const float here = meanDrift<Device>(w, r, p);
  return drift > 0.0f ? here > 0.0f : here < 0.0f;
}

/// The first zero of the mean drift on the way from weight 0 (confined to the bounds) to the bound
/// towards which the cell drifts, or else to the other bound; the start if the drift has one sign
/// everywhere. Searched in steps of a 128th of the way, then by bisection.
template <class Device>
PULSORA_HD float searchedPoint(const typename Device::Response &r,
                               const typename Device::Params &p) {
  constexpr int kSteps = 128;
  constexpr int kHalvings = 30;
  const float start = clipWeight(0.0f, r);
  const float drift = meanDrift<Device>(start, r, p);
  if (drift == 0.0f) return start;
  const float ends[] = {drift > 0.0f ? r.w_max : r.w_min, drift > 0.0f ? r.w_min : r.w_max};
  for (const float end : ends) {
    const float step = (end - start) * (1.0f / kSteps);
    float before = start;
    for (int k = 1; k <= kSteps; ++k) {
      float after = k < kSteps ? pulsora::fma(static_cast<float>(k), step, start) : end;
      if (driftsLike<Device>(drift, after, r, p)) {
        before = after;
        continue;
      }
      for (int halving = 0; halving < kHalvings; ++halving) {
        const float middle = 0.5f * (before + after);
        const bool early = driftsLike<Device>(drift, middle, r, p);
        before = early ? middle : before;
        after = early ? after : middle;
      }
      return after;
    }
  }
  return start;
}

/// The symmetric point of a cell: the weight within its bounds at which its mean steps up and down
/// are equal. Pulses in random directions lead to this point if the up step is the larger one below
/// it. A cell whose steps are equal everywhere, or nowhere within its bounds, has none; the result
/// is then 0, confined to the bounds. If there are several, the result is one that cells reach from
/// 0. A model may define a closed form, `static float symmetricPoint(const Response &)`; for other
/// models the point is searched, to the rounding of a pulse.
template <class Device>
PULSORA_HD float symmetricPoint(const typename Device::Response &r,
                                const typename Device::Params &p) {
  float w = 0.0f;
  if constexpr (detail::StatesSymmetricPoint<Device>::value) {
    w = Device::symmetricPoint(r);
  } else {
    w = searchedPoint<Device>(r, p);
  }
  const float slack = 1e-6f * (r.w_max - r.w_min);  // a closed form rounds
  const bool within = w >= r.w_min - slack && w <= r.w_max + slack;
  return clipWeight(within ? w + 0.0f : 0.0f, r);
}

/// The symmetric point as a chip finds it: the weight of the cell after `pairs` pulses up and down
/// in turn, from weight 0 confined to its bounds. Pulse n has the cycle noise of sample n.
template <class Device, class Key>
PULSORA_HD float pulsedPoint(int64_t pairs, const typename Device::Response &r,
                             const typename Device::Params &p, const Key &key, uint64_t cell) {
  float w = clipWeight(0.0f, r);
  const auto pulses = static_cast<uint64_t>(2 * pairs);
  for (uint64_t n = 0; n < pulses; ++n) {
    const float xi = normalOfSample(key, Purpose::CycleNoise, cell, n);
    w = onePulse<Device>(w, n % 2 == 0, r, p, xi);
  }
  return w;
}

}  // namespace pulsora
