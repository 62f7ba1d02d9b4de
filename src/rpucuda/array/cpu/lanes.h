#pragma once

#include "array/pulsed_kernels.h"
#include "core/isa.h"
#include "devices/batch_noise.h"
#include "devices/pulse_rule.h"
#include "numerics/half.h"
#include "numerics/philox_batch.h"
#include "numerics/simd_mask.h"

namespace pulsora {
namespace cpu {

/// Cells that an update treats together; they are the lanes of every vector loop.
constexpr int kBlock = 64;

/// normal8() of each block of a batch: normal n of block k goes to z[n * kNormals + k * kBlocks].
/// Blocks from `count` on may be missing.
template <int kNormals, int kBlocks>
PULSORA_HD void normalsOfBatch(const PhiloxBatch &batch, float *z, int count = 8) {
  for (int m = 0; m < 4 && 2 * m < count; ++m) {
    for (int k = 0; k < kPhiloxBatch; ++k) {
      const NormalPair pair = normalPair16(batch.words[m][k]);
      z[2 * m * kNormals + k * kBlocks] = pair.z0;
      z[(2 * m + 1) * kNormals + k * kBlocks] = pair.z1;
    }
  }
}

/// normalOfSample() of Purpose::CycleNoise for cells with a sample each, whose lower half is in
/// `low` and whose upper half is `high`.
PULSORA_HD void normalsOfSamples(RandomKey key, const uint32_t (&cells)[kPhiloxBatch],
                                 const uint32_t (&low)[kPhiloxBatch], uint32_t high,
                                 float (&normals)[kPhiloxBatch]) {
  uint32_t groups[kPhiloxBatch];
  for (int k = 0; k < kPhiloxBatch; ++k) groups[k] = low[k] >> 3 | high << 29;
  PhiloxBatch batch;
  drawBatch(key, Purpose::CycleNoise, cells, groups, high >> 3, 0, batch);
  for (int k = 0; k < kPhiloxBatch; ++k) {
    const uint32_t even = (low[k] & 4u) ? batch.words[2][k] : batch.words[0][k];
    const uint32_t odd = (low[k] & 4u) ? batch.words[3][k] : batch.words[1][k];
    const NormalPair pair = normalPair16((low[k] & 2u) ? odd : even);
    normals[k] = (low[k] & 1u) ? pair.z1 : pair.z0;
  }
}

/// An array for the work of array/cell_events.h.
template <class Device>
struct Array {
  int64_t rows;
  int64_t cols;
  float *weights;
  const uint16_t *cells;
  RandomKey key;
  typename Device::Params params;

  static PULSORA_HD Array of(const SampledCells &a, float *weights = nullptr) {
    return {a.rows, a.cols, weights, a.cells, a.key, paramsOf<typename Device::Params>(*a.params)};
  }
  static PULSORA_HD Array of(const CellArray &a) { return of(a, a.weights); }
  PULSORA_HD int64_t size() const { return rows * cols; }
  PULSORA_HD typename Device::Response response(int64_t i) const {
    typename Device::Cell cell;
    int64_t at = i;
    cell.members([&](const char *, float &value) {
      value = halfToFloat(cells[at]);
      at += size();
    });
    return Device::response(cell, params);
  }
};

/// kBlock cells, from any places, during an update: weights, responses, and the rule of
/// pulse_rule.h.
template <Isa isa, class Device>
class Lanes {
 public:
  using Params = typename Device::Params;
  using Cell = typename Device::Cell;
  using Response = typename Device::Response;

  PULSORA_HD Lanes(const CellArray &array, const Params &params) : a_(array), p_(params) {}

  uint64_t cell(int lane) const { return cells_[lane]; }
  PULSORA_HD float &weight(int lane) { return w_[lane]; }
  PULSORA_HD Response response(int lane) const { return gather(response_, lane); }

  /// The rule of pulse_rule.h for one sample of every lane, with signed counts n. sampleOf(lane) is
  /// the sample's number, whose upper half all lanes share; z are the samples' normals. For lanes
  /// with a count of 0, sampleOf and z may give anything finite.
  template <bool kAtMostOne, class SampleOf>
  PULSORA_HD void apply(const float (&n)[kBlock], const float (&z)[kBlock],
                        const SampleOf &sampleOf) {
    float next[kBlock];
    uint32_t deferred[kBlock];
    uint32_t anyDeferred = 0;
    for (int j = 0; j < kBlock; ++j) {
      const Response r = gather(response_, j);
      const float w = w_[j];
      const bool up = n[j] > 0.0f;
      const float count = pulsora::abs(n[j]);
      float result = w;
      if constexpr (!kAtMostOne && kHasClosedForm<Device>) {
        bool holds = false;
        const float closed = closedPulses<Device>(w, pulseSum(count, p_), up, r, p_, z[j], holds);
        result = count > 0.0f ? closed : w;
        deferred[j] = (count > 1.0f ? 1U : 0U) & (holds ? 0U : 1U);
      } else {
        const float one = onePulse<Device>(w, up, r, p_, z[j]);
        result = count > 0.0f ? one : w;
        deferred[j] = !kAtMostOne && count > 1.0f ? 1U : 0U;
      }
      anyDeferred |= deferred[j];
      next[j] = result;
    }
    if constexpr (!kAtMostOne) {
      if (anyDeferred) pulseByPulse(deferred, n, z, sampleOf, next);
    }
    for (int j = 0; j < kBlock; ++j) w_[j] = next[j];
  }

  /// All pulses of an update at once, with normals z. Lanes in which batchwise noise
  /// (devices/batch_noise.h) does not hold are marked in `deferred` and keep their weights.
  PULSORA_HD void mergePulses(const uint32_t (&up)[kBlock], const uint32_t (&down)[kBlock],
                              const float (&z)[kBlock], uint32_t (&deferred)[kBlock]) {
    for (int j = 0; j < kBlock; ++j) {
      const Response r = gather(response_, j);
      bool holds = false;
      const float merged = mergedPulses<Device>(
          w_[j], static_cast<float>(static_cast<int32_t>(up[j])),
          static_cast<float>(static_cast<int32_t>(down[j])), r, p_, z[j], holds);
      deferred[j] = holds ? 0U : 1U;
      w_[j] = holds ? merged : w_[j];
    }
  }

 protected:
  static constexpr int kCellMembers = sizeof(Cell) / sizeof(float);
  static constexpr int kResponseMembers = sizeof(Response) / sizeof(float);

  /// Derives responses from the stored members; with kAtMostOne, without the members that only
  /// samples of several pulses need.
  template <bool kAtMostOne>
  PULSORA_HD void respond(const float (&members)[kCellMembers][kBlock]) {
    if (p_.up_down == 0.0f) {  // nearly always; compilers vectorise the loop if they know it
      Params p = p_;
      p.up_down = 0.0f;
      respondWith<kAtMostOne>(p, members);
    } else {
      respondWith<kAtMostOne>(p_, members);
    }
  }

  /// Loads cells_[0] to cells_[count - 1], from any places. The lanes behind repeat the first.
  PULSORA_HD void loadCells(int count) {
    for (int j = count; j < kBlock; ++j) cells_[j] = cells_[0];
    respondOfCells();
    for (int j = 0; j < kBlock; ++j) w_[j] = a_.weights[cells_[j]];
  }
  /// Writes the weights of these cells.
  PULSORA_HD void storeCells(int count) const {
    for (int j = 0; j < count; ++j) a_.weights[cells_[j]] = w_[j];
  }

  /// Derives the responses of cells_, from any places.
  PULSORA_HD void respondOfCells() {
    float members[kCellMembers][kBlock];
    for (int m = 0; m < kCellMembers; ++m) {
      const uint16_t *plane = a_.cells + m * a_.size();
      uint16_t halves[kBlock];
      for (int j = 0; j < kBlock; ++j) halves[j] = plane[cells_[j]];
      for (int j = 0; j < kBlock; ++j) members[m][j] = halfToFloat(halves[j]);
    }
    respond<false>(members);
  }

  template <bool kAtMostOne>
  PULSORA_HD void respondWith(const Params &p, const float (&members)[kCellMembers][kBlock]) {
    for (int j = 0; j < kBlock; ++j) {
      Cell cell;
      int m = 0;
      cell.members([&](const char *, float &value) { value = members[m++][j]; });
      Response r = Device::response(cell, p);
      if constexpr (kAtMostOne) r.dropClosedForm();
      m = 0;
      r.members([&](float &value) { response_[m++][j] = value; });
    }
  }

  template <int kLanes>
  static PULSORA_HD Response gather(const float (&members)[kResponseMembers][kLanes], int lane) {
    Response r;
    int m = 0;
    r.members([&](float &value) { value = members[m++][lane]; });
    return r;
  }

  const CellArray &a_;
  const Params &p_;
  uint32_t cells_[kBlock];
  float w_[kBlock];
  float response_[kResponseMembers][kBlock];

 private:
  /// sequentialPulses() for the lanes marked in `deferred`, which are packed into full vectors.
  template <class SampleOf>
  PULSORA_HD void pulseByPulse(const uint32_t (&deferred)[kBlock], const float (&n)[kBlock],
                               const float (&z)[kBlock], const SampleOf &sampleOf,
                               float (&next)[kBlock]) const {
    constexpr int kLanes = kPhiloxBatch;
    for (uint64_t left = lanesWith(deferred, 1u); left;) {
      int lane[kLanes];
      int lanes = 0;
      for (; left && lanes < kLanes; left &= left - 1) lane[lanes++] = __builtin_ctzll(left);
      float w[kLanes], signedCount[kLanes], xi[8][kLanes], response[kResponseMembers][kLanes];
      uint32_t cells[kLanes];
      uint32_t samples[kLanes];
      float longest = 0.0f;
      for (int i = 0; i < kLanes; ++i) {
        const int j = lane[i < lanes ? i : 0];
        w[i] = w_[j];
        signedCount[i] = n[j];
        xi[0][i] = z[j];
        cells[i] = static_cast<uint32_t>(cell(j));
        samples[i] = static_cast<uint32_t>(sampleOf(j));
        for (int m = 0; m < kResponseMembers; ++m) response[m][i] = response_[m][j];
        longest = pulsora::max(longest, pulsora::abs(n[j]));
      }
      const int pulses = static_cast<int>(longest);
      const auto high = static_cast<uint32_t>(sampleOf(lane[0]) >> 32);
      for (int k = 0; k < pulses; ++k) {
        if (k % 8 == 0) laterNormals(cells, samples, high, k, pulses, xi);
        for (int i = 0; i < kLanes; ++i) {
          const Response r = gather(response, i);
          const float moved = onePulse<Device>(w[i], signedCount[i] > 0.0f, r, p_, xi[k & 7][i]);
          w[i] = static_cast<float>(k) < pulsora::abs(signedCount[i]) ? moved : w[i];
        }
      }
      for (int i = 0; i < lanes; ++i) next[lane[i]] = w[i];
    }
  }

  /// The normals, as sequentialPulses() draws them, of the pulses from k, a multiple of 8, to k +
  /// 7, as far as they come before `pulses`. Leaves xi[0] alone if k is 0, because pulse 0 takes
  /// the sample's own normal.
  PULSORA_HD void laterNormals(const uint32_t (&cells)[kPhiloxBatch],
                               const uint32_t (&samples)[kPhiloxBatch], uint32_t high, int k,
                               int pulses, float (&xi)[8][kPhiloxBatch]) const {
    PhiloxBatch batch;
    drawBatch(a_.key, Purpose::CyclePulse, cells, samples, high, static_cast<uint32_t>(k >> 3),
              batch);
    float ofSample[kPhiloxBatch];
    for (int i = 0; i < kPhiloxBatch; ++i) ofSample[i] = xi[0][i];
    normalsOfBatch<kPhiloxBatch, 1>(batch, xi[0], pulses - k);
    if (k == 0) {
      for (int i = 0; i < kPhiloxBatch; ++i) xi[0][i] = ofSample[i];
    }
  }
};

}  // namespace cpu
}  // namespace pulsora
