#pragma once

#include "array/pulsed_kernels.h"
#include "devices/pulsed_model.h"
#include "devices/symmetric_point.h"
#include "numerics/half.h"

// Events of a cell besides pulses: it is made, described and written, it decays, diffuses and is
// reset. One function per formula, for every backend, then the functors that kernels run.

namespace pulsora {

/// A relative value stored per cell, or 1 where all cells agree.
PULSORA_HD float planeValue(const uint16_t *plane, int64_t i) {
  return plane ? halfToFloat(plane[i]) : 1.0f;
}

/// The value a cell is reset to. A plane holds the deviation from the mean in units of reset_dtod.
template <class Response, class Params>
PULSORA_HD float resetValue(const Response &r, const Params &p, const uint16_t *resets, int64_t i) {
  const float deviation = resets ? halfToFloat(resets[i]) : 0.0f;
  return pulsora::fma(p.reset_dtod, deviation, p.reset) + r.resetShift(p);
}

/// Diffusion, decay and bounds at the end of a mini-batch: w += diffusion xi; w = b + (w - b)(1 -
/// 1/lifetime).
template <class Response, class Params>
PULSORA_HD float relaxedWeight(float w, const Response &r, const Params &p, const Relaxation &event,
                               RandomKey key, int64_t cell) {
  if (p.diffusion > 0.0f) {
    const float xi =
        normalOfSample(key, Purpose::Diffusion, static_cast<uint64_t>(cell), event.event);
    w = pulsora::fma(p.diffusion * planeValue(event.diffusions, cell), xi, w);
  }
  if (p.lifetime > 0.0f) {
    const float rate = pulsora::min(planeValue(event.decayRates, cell) / p.lifetime, 1.0f);
    const float base = resetValue(r, p, event.resets, cell);
    w = pulsora::fma(w - base, 1.0f - rate, base);
  }
  return clipWeight(w, r);
}

/// A reset with that probability: w = reset value + reset_std xi within the bounds.
template <class Response, class Params>
PULSORA_HD float resetCell(float w, const Response &r, const Params &p, const uint16_t *resets,
                           float probability, RandomKey key, int64_t cell, uint64_t event) {
  const Philox4 block = draw(key, Purpose::Reset, static_cast<uint64_t>(cell), event);
  if (uniform(block.v[2]) >= probability) return w;
  const float xi = normalPair(block.v[0], block.v[1]).z0;
  return clipWeight(pulsora::fma(p.reset_std, xi, resetValue(r, p, resets, cell)), r);
}

/// A reset of the columns that `event` selects.
template <class Response, class Params>
PULSORA_HD float resetWeight(float w, const Response &r, const Params &p, const ResetEvent &event,
                             RandomKey key, int64_t cell, int64_t cols) {
  const int64_t offset = (cell % cols - event.firstCol + cols) % cols;
  if (offset >= event.cols) return w;
  return resetCell(w, r, p, event.resets, event.probability, key, cell, event.event);
}

/// A digital write of a weight, confined to the bounds and never -0 (see clipWeight).
template <class Response>
PULSORA_HD float writtenWeight(float wanted, const Response &r) {
  return clipWeight(wanted + 0.0f, r);
}

/// A digital write of the cell's element of `from`, or of its weight w if `from` is empty.
template <class Response>
PULSORA_HD float writtenWeight(float w, const Response &r, MatrixView<const float> from,
                               int64_t cell) {
  if (!from.data) return clipWeight(w, r);
  return writtenWeight(from(cell / from.cols, cell % from.cols), r);
}

/// Bounds and mean steps of a cell at weight w, as four planes: w_max, w_min, step up, step down
/// (signed changes).
template <class Device>
PULSORA_HD void describeCell(float w, const typename Device::Response &r,
                             const typename Device::Params &p, float *out, int64_t plane) {
  out[0] = r.w_max;
  out[plane] = r.w_min;
  out[2 * plane] = Device::pulse(w, true, r, p, 0.0f) - w;
  out[3 * plane] = Device::pulse(w, false, r, p, 0.0f) - w;
}

// Work of kernels on cell i of an array. A backend's `Array` has the members of CellArray, the
// model's own parameters in `params`, and response(i), read in the fastest way of the backend.

/// Samples the cell into the planes `cells`.
template <class Device>
struct ConstructCell {
  uint16_t *cells;

  template <class Array>
  PULSORA_HD void operator()(const Array &a, int64_t i) const {
    sample(a, i, i % a.cols == a.cols - 1, {});
  }

  /// operator() for a cell whose first draws are made; `isLast` marks the last column.
  template <class Array>
  PULSORA_HD void sample(const Array &a, int64_t i, bool isLast, const DrawsMade &made) const {
    CellDraws draws(a.key, static_cast<uint64_t>(i), made);
    typename Device::Cell cell = Device::construct(a.params, draws, isLast);
    int64_t at = i;
    cell.members([&](const char *, float &value) {
      cells[at] = floatToHalf(value);
      at += a.size();
    });
  }
};

template <class Device>
struct DescribeCell {
  const float *weights;
  float *out;

  template <class Array>
  PULSORA_HD void operator()(const Array &a, int64_t i) const {
    describeCell<Device>(weights[i], a.response(i), a.params, out + i, a.size());
  }
};

/// The cell's symmetric point: exact, or as found by `pairs` of pulses with the noise of the
/// array's key.
template <class Device>
struct BalanceCell {
  int64_t pairs;  // 0: exactly
  float *points;

  template <class Array>
  PULSORA_HD void operator()(const Array &a, int64_t i) const {
    const typename Device::Response r = a.response(i);
    points[i] = pairs > 0 ? pulsedPoint<Device>(pairs, r, a.params, a.key, static_cast<uint64_t>(i))
                          : symmetricPoint<Device>(r, a.params);
  }
};

struct RelaxCell {
  Relaxation event;

  template <class Array>
  PULSORA_HD void operator()(const Array &a, int64_t i) const {
    if (event.fault && *event.fault) return;
    a.weights[i] = relaxedWeight(a.weights[i], a.response(i), a.params, event, a.key, i);
  }
};

struct ResetCell {
  ResetEvent event;

  template <class Array>
  PULSORA_HD void operator()(const Array &a, int64_t i) const {
    if (event.chosen && event.chosen[i] == 0.0f) return;
    a.weights[i] = resetWeight(a.weights[i], a.response(i), a.params, event, a.key, i, a.cols);
  }
};

struct WriteCell {
  MatrixView<const float> from;

  template <class Array>
  PULSORA_HD void operator()(const Array &a, int64_t i) const {
    a.weights[i] = writtenWeight(a.weights[i], a.response(i), from, i);
  }
};

}  // namespace pulsora
