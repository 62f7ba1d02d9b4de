#pragma once

#include "core/half.h"
#include "devices/pulsed_model.h"
#include "array/pulsed_kernels.h"

// What happens to a cell besides pulses: decay, diffusion and resets. One function per formula, for
// every backend.

namespace RPU {

/// A relative value stored per cell, or 1 where all cells agree.
RPU_HD float planeValue(const uint16_t *plane, int64_t i) {
  return plane ? halfToFloat(plane[i]) : 1.0f;
}

/// The value a cell is reset to. A plane holds the deviation from the mean in units of reset_dtod.
template <class Response, class Params>
RPU_HD float resetValue(const Response &r, const Params &p, const uint16_t *resets, int64_t i) {
  const float deviation = resets ? halfToFloat(resets[i]) : 0.0f;
  return RPU::fma(p.reset_dtod, deviation, p.reset) + r.resetShift(p);
}

/// Diffusion, decay and bounds at the end of a mini-batch: w += diffusion xi; w = b + (w - b)(1 -
/// 1/lifetime).
template <class Response, class Params>
RPU_HD float relaxedWeight(float w, const Response &r, const Params &p, const Relaxation &event,
                           RandomKey key, int64_t cell) {
  if (p.diffusion > 0.0f) {
    const float xi =
        normalOfSample(key, Purpose::Diffusion, static_cast<uint64_t>(cell), event.event);
    w = RPU::fma(p.diffusion * planeValue(event.diffusions, cell), xi, w);
  }
  if (p.lifetime > 0.0f) {
    const float rate = RPU::min(planeValue(event.decayRates, cell) / p.lifetime, 1.0f);
    const float base = resetValue(r, p, event.resets, cell);
    w = RPU::fma(w - base, RPU::fma(-event.decayScale, rate, 1.0f), base);
  }
  return clipWeight(w, r);
}

/// A reset: w = reset value + reset_std xi within the bounds, for the cells that `event` selects.
template <class Response, class Params>
RPU_HD float resetWeight(float w, const Response &r, const Params &p, const ResetEvent &event,
                         RandomKey key, int64_t cell, int64_t cols) {
  const int64_t offset = (cell % cols - event.firstCol + cols) % cols;
  if (offset >= event.cols) return w;
  const Philox4 block = draw(key, Purpose::Reset, static_cast<uint64_t>(cell), event.event);
  if (uniform(block.v[2]) >= event.probability) return w;
  const float xi = normalPair(block.v[0], block.v[1]).z0;
  return clipWeight(RPU::fma(p.reset_std, xi, resetValue(r, p, event.resets, cell)), r);
}

/// Bounds and mean steps of a cell at weight w, as four planes: w_max, w_min, step up, step down
/// (signed changes).
template <class Device>
RPU_HD void describeCell(float w, const typename Device::Response &r,
                         const typename Device::Params &p, float *out, int64_t plane) {
  out[0] = r.w_max;
  out[plane] = r.w_min;
  out[2 * plane] = Device::pulse(w, true, r, p, 0.0f) - w;
  out[3 * plane] = Device::pulse(w, false, r, p, 0.0f) - w;
}

}  // namespace RPU
