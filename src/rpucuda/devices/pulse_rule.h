#pragma once

#include <type_traits>

#include "devices/pulsed_model.h"

// The rule by which a cell takes the n coincidences of one sample. It is the definition that every
// kernel, on every backend, must reproduce to the bit; kernels rearrange the loops around it, never
// the steps in it.

namespace RPU {

namespace detail {
template <class Device, class = void>
struct HasClosedForm : std::false_type {};
template <class Device>
struct HasClosedForm<Device, std::void_t<decltype(&Device::pulses)>> : std::true_type {};
}  // namespace detail

/// Whether a model states the closed form of several pulses.
template <class Device>
constexpr bool kHasClosedForm = detail::HasClosedForm<Device>::value;

/// One pulse and the bounds.
template <class Device>
RPU_HD float onePulse(float w, bool up, const typename Device::Response &r,
                      const typename Device::Params &p, float xi) {
  return clipWeight(Device::pulse(w, up, r, p, xi), r);
}

/// n >= 1 pulses one after another, with the bounds after each. Pulse 0 takes the sample's own
/// normal `z`, that is normalOfSample(key, CycleNoise, cell, sample); pulse k >= 1 takes the normal
/// k % 8 of normal8(draw(key, CyclePulse, cell, sample, k / 8)).
template <class Device>
RPU_HD float sequentialPulses(float w, int n, bool up, const typename Device::Response &r,
                              const typename Device::Params &p, float z, RandomKey key,
                              uint64_t cell, uint64_t sample) {
  w = onePulse<Device>(w, up, r, p, z);
  Philox4 block{};
  for (uint32_t k = 1; k < static_cast<uint32_t>(n); ++k) {
    if (k == 1 || (k & 7U) == 0) block = draw(key, Purpose::CyclePulse, cell, sample, k >> 3);
    const NormalPair pair = normalPair16(wordOf(block, (k & 7U) >> 1));
    w = onePulse<Device>(w, up, r, p, (k & 1U) != 0 ? pair.z1 : pair.z0);
  }
  return w;
}

/// n >= 1 pulses in closed form; the result is to be used only where `holds` comes back true.
template <class Device>
RPU_HD float closedPulses(float w, float n, bool up, const typename Device::Response &r,
                          const typename Device::Params &p, float z, bool &holds) {
  const Moments m = Device::pulses(w, n, up, r, p);
  holds = closedFormHolds(w, m, r, p);
  return clipWeight(RPU::fma(m.sd, z, m.mean), r);
}

/// The rule: one coincidence is one pulse; several are taken in closed form where that holds, else
/// one by one.
template <class Device>
RPU_HD float applyPulses(float w, int n, bool up, const typename Device::Response &r,
                         const typename Device::Params &p, float z, RandomKey key, uint64_t cell,
                         uint64_t sample) {
  if (n == 0) return w;
  if (n == 1) return onePulse<Device>(w, up, r, p, z);
  if constexpr (kHasClosedForm<Device>) {
    bool holds = false;
    const float closed = closedPulses<Device>(w, static_cast<float>(n), up, r, p, z, holds);
    if (holds) return closed;
  }
  return sequentialPulses<Device>(w, n, up, r, p, z, key, cell, sample);
}

}  // namespace RPU
