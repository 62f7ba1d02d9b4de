#pragma once

#include <type_traits>

#include "devices/affine_moments.h"

// noise_merge = "batch": a cell takes all pulses of one update at once, with one normal. Where no
// bound is near, the weight after U pulses up and D pulses down of a device whose step does not
// depend on the weight is exactly normal, whatever their order:
//
//   w + s_up U - s_down D + sigma sqrt(s_up^2 U + s_down^2 D) z
//
// Where the step is an affine function of the weight, the order counts: mean and variance follow
// from the samples one after another (affine_moments.h).
//
// A cell whose weight could come near a bound on the way takes the samples of the update one by one
// instead, by the rule of pulse_rule.h. Weights, counts and bounds alone determine these cells, so
// that every kernel, on every backend, reproduces the same bits.

namespace pulsora {

namespace detail {
template <class Device, class = void>
struct MergesInAnyOrder : std::false_type {};
template <class Device>
struct MergesInAnyOrder<Device, std::void_t<decltype(&Device::mixedPulses)>> : std::true_type {};
template <class Device, class = void>
struct MergesInOrder : std::false_type {};
template <class Device>
struct MergesInOrder<Device, std::void_t<decltype(&Device::affineMaps)>> : std::true_type {};
}  // namespace detail

/// Whether a model defines Device::affineMaps(), the maps of a pulse in either direction.
template <class Device>
constexpr bool kMergesInOrder = detail::MergesInOrder<Device>::value;

/// Whether a model supports noise_merge = "batch": it defines Device::mixedPulses(), the sum of
/// pulses up and down in any order, or Device::affineMaps(). Such a model defines pulses() and
/// reach() too.
template <class Device>
constexpr bool kMergesNoise = detail::MergesInAnyOrder<Device>::value || kMergesInOrder<Device>;

/// Calls work(std::true_type) for multiplicative noise, work(std::false_type) for additive noise.
template <class Params, class Work>
PULSORA_HD auto withKindOfNoise(const Params &p, const Work &work) {
  if (p.mult_noise) return work(std::true_type{});
  return work(std::false_type{});
}

/// The random words of eight cells in one update: normal8(words).z[k] is the normal of cell 8
/// cellGroup + k. `firstSample` is the global index of the first sample of the update.
template <class Key = RandomKey>
PULSORA_HD Philox4 drawOfUpdate(const Key &key, uint64_t cellGroup, uint64_t firstSample) {
  return draw(key, Purpose::CycleNoiseBatch, cellGroup, firstSample);
}

/// The normal of one cell in the update that begins with `firstSample`.
template <class Key = RandomKey>
PULSORA_HD float normalOfUpdate(const Key &key, uint64_t cell, uint64_t firstSample) {
  const Philox4 block = drawOfUpdate(key, cell >> 3, firstSample);
  const NormalPair pair = normalPair16(wordOf(block, static_cast<uint32_t>(cell & 7U) >> 1));
  return (cell & 1U) != 0 ? pair.z1 : pair.z0;
}

/// The weight after `up` pulses up and `down` pulses down in any order, with normal z. Valid only
/// if `holds` is set to true: then no bound lies within five standard deviations of the weight on
/// any path.
template <class Device>
PULSORA_HD float mergedPulses(float w, float up, float down, const typename Device::Response &r,
                              const typename Device::Params &p, float z, bool &holds) {
  const Moments m = Device::mixedPulses(w, up, down, r, p);
  // The mean is linear in both counts: its extremes on all paths are at corners.
  const float afterUp = Device::mixedPulses(w, up, 0.0f, r, p).mean;
  const float afterDown = Device::mixedPulses(w, 0.0f, down, r, p).mean;
  const float margin = 5.0f * m.sd;
  const float highest = pulsora::maxForCompare(pulsora::maxForCompare(w, m.mean),
                                               pulsora::maxForCompare(afterUp, afterDown)) +
                        margin;
  const float lowest = pulsora::minForCompare(pulsora::minForCompare(w, m.mean),
                                              pulsora::minForCompare(afterUp, afterDown)) -
                       margin;
  // Integers, so that the loop vectorises; see closedFormHolds().
  const uint32_t within = (lowest >= r.w_min ? 1U : 0U) & (highest <= r.w_max ? 1U : 0U);
  const uint32_t none = up + down == 0.0f ? 1U : 0U;
  holds = (within | none) != 0;
  return none != 0 ? w : clipWeight(pulsora::fma(m.sd, z, m.mean), r);
}

}  // namespace pulsora
