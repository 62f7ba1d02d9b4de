#pragma once

#include "core/half.h"
#include "core/isa.h"
#include "core/lane_mask.h"
#include "core/philox_batch.h"
#include "devices/pulse_rule.h"
#include "pulsed_kernels.h"

namespace RPU {
namespace cpu {

/// Cells that an update treats together; they are the lanes of every vector loop.
constexpr int kBlock = 64;

/// kBlock neighbouring cells during an update: weights, responses, and the pulse words of their
/// lines.
template <Isa isa, class Device>
class Block {
 public:
  using Params = typename Device::Params;
  using Cell = typename Device::Cell;
  using Response = typename Device::Response;

  RPU_HD Block(const CellArray &array, const Params &params, int64_t first, int count)
      : a_(array),
        p_(params),
        first_(first),
        count_(count),
        row_(first / array.cols),
        col_(first % array.cols),
        oneRow_(col_ + count <= array.cols) {}

  int count() const { return count_; }
  uint64_t cell(int lane) const { return static_cast<uint64_t>(first_ + lane); }

  // --- weights and responses
  // -------------------------------------------------------------------------------------

  /// Reads weights and derives responses; with kAtMostOne, without what samples of several pulses
  /// need.
  template <bool kAtMostOne>
  RPU_HD void load() {
    float members[kCellMembers][kBlock];
    for (int m = 0; m < kCellMembers; ++m) {
      const uint16_t *plane = a_.cells + m * a_.size() + first_;
      if (count_ == kBlock) {
        for (int j = 0; j < kBlock; ++j) members[m][j] = halfToFloat(plane[j]);
      } else {
        for (int j = 0; j < kBlock; ++j) members[m][j] = 1.0f;
        for (int j = 0; j < count_; ++j) members[m][j] = halfToFloat(plane[j]);
      }
    }
    for (int j = 0; j < kBlock; ++j) {
      Cell cell;
      int m = 0;
      cell.members([&](const char *, float &value) { value = members[m++][j]; });
      Response r = Device::response(cell, p_);
      if constexpr (kAtMostOne) r.dropClosedForm();
      m = 0;
      r.members([&](float &value) { response_[m++][j] = value; });
    }
    for (int j = 0; j < kBlock; ++j) w_[j] = 0.0f;
    for (int j = 0; j < count_; ++j) w_[j] = a_.weights[first_ + j];
  }

  RPU_HD void store() const {
    for (int j = 0; j < count_; ++j) a_.weights[first_ + j] = w_[j];
  }

  // --- lines
  // -----------------------------------------------------------------------------------------------------

  /// Reads one word of every lane's lines. False if none of the d lines has a pulse in it; the
  /// words are then unchanged.
  RPU_HD bool loadWord(const PulseWords &p, int64_t word) {
    const uint32_t *xBits = p.xBits + word * p.xSize;
    const uint32_t *xSigns = p.xSigns + word * p.xSize;
    const uint32_t *dBits = p.dBits + word * p.dSize;
    const uint32_t *dSigns = p.dSigns + word * p.dSize;
    const uint32_t *dOther =
        p.kind == PulseKind::TwoPass ? p.dBitsNegativeX + word * p.dSize : dBits;
    if (oneRow_) {
      const uint32_t d = dBits[row_];
      const uint32_t other = dOther[row_];
      const uint32_t signs = dSigns[row_];
      anyD_ = d | other;
      if (!anyD_) return false;
      for (int j = 0; j < kBlock; ++j) {  // the planes are padded
        const uint32_t xs = xSigns[col_ + j];
        both_[j] = xBits[col_ + j] & ((d & ~xs) | (other & xs));
        differ_[j] = xs ^ signs;
      }
    } else {
      anyD_ = 0;
      int64_t row = row_;
      int64_t col = col_;
      for (int j = 0; j < count_; ++j) {
        const uint32_t xs = xSigns[col];
        const uint32_t d = (dBits[row] & ~xs) | (dOther[row] & xs);
        anyD_ |= d;
        both_[j] = xBits[col] & d;
        differ_[j] = xs ^ dSigns[row];
        if (++col == a_.cols) {
          col = 0;
          ++row;
        }
      }
      if (!anyD_) return false;
    }
    for (int j = count_; j < kBlock; ++j) both_[j] = differ_[j] = 0;
    return true;
  }
  /// Slots in which any d line of the block fires.
  uint32_t anyD() const { return anyD_; }
  /// Slots in which both lines of a lane fire, and in which their signs differ.
  const uint32_t (&both() const)[kBlock] { return both_; }
  const uint32_t (&differ() const)[kBlock] { return differ_; }

  /// Signed coincidences of every lane in a sample of the deterministic pulse types; negative is
  /// down.
  RPU_HD void countLevels(const PulseWords &p, int64_t s, float (&n)[kBlock]) const {
    const float *x = p.xLevels + s * p.xSize;
    const float *d = p.dLevels + s * p.dSize;
    const float length = static_cast<float>(p.trainLength[s]);
    const float scale =
        p.kind == PulseKind::MeanCount ? (length > 0.0f ? 1.0f / length : 0.0f) : length;
    int64_t row = row_;
    int64_t col = col_;
    for (int j = 0; j < kBlock; ++j) {
      n[j] = j < count_ ? -RPU::rint(x[col] * d[row] * scale)
                        : 0.0f;  // equal signs step the cell down
      if (j + 1 < count_ && ++col == a_.cols) {
        col = 0;
        ++row;
      }
    }
  }

  // --- pulses
  // ----------------------------------------------------------------------------------------------------

  /// Signed coincidences of every lane in one sample of the present word: those of the slots from
  /// `shift` on, under `mask` once shifted. Negative is down. Adds their number to `pulses`.
  template <bool kAtMostOne>
  RPU_HD void count(int shift, uint32_t mask, float (&n)[kBlock],
                    uint32_t (&pulses)[kBlock]) const {
    for (int j = 0; j < kBlock; ++j) {
      const uint32_t bits = (both_[j] >> shift) & mask;
      const uint32_t count = kAtMostOne ? bits : popcount(bits);
      pulses[j] += count;
      const uint32_t down = ~(differ_[j] >> shift) << 31;
      n[j] =
          bitCast<float>(bitCast<uint32_t>(static_cast<float>(static_cast<int32_t>(count))) | down);
    }
  }

  /// The rule of pulse_rule.h for one sample of every lane, with signed counts n. z are the normals
  /// of the sample; those of lanes with a count of 0 may be any finite number.
  template <bool kAtMostOne>
  RPU_HD void apply(const float (&n)[kBlock], const float (&z)[kBlock], uint64_t sample) {
    float next[kBlock];
    uint32_t redo[kBlock];
    uint32_t anyRedo = 0;
    for (int j = 0; j < kBlock; ++j) {
      const Response r = gather(response_, j);
      const float w = w_[j];
      const bool up = n[j] > 0.0f;
      const float count = RPU::abs(n[j]);
      const float one = onePulse<Device>(w, up, r, p_, z[j]);
      float result = count == 0.0f ? w : one;
      if constexpr (!kAtMostOne) {
        bool holds = false;
        if constexpr (kHasClosedForm<Device>) {
          const float closed = closedPulses<Device>(w, count, up, r, p_, z[j], holds);
          result = count > 1.0f ? closed : result;
        }
        redo[j] = (count > 1.0f ? 1U : 0U) & (holds ? 0U : 1U);
        anyRedo |= redo[j];
      }
      next[j] = result;
    }
    if constexpr (!kAtMostOne) {
      if (anyRedo) pulseByPulse(redo, n, z, sample, next);
    }
    for (int j = 0; j < kBlock; ++j) w_[j] = next[j];
  }

 private:
  static constexpr int kCellMembers = sizeof(Cell) / sizeof(float);
  static constexpr int kResponseMembers = sizeof(Response) / sizeof(float);

  /// sequentialPulses() for the lanes marked in `redo`, which are packed into full vectors.
  RPU_HD void pulseByPulse(const uint32_t (&redo)[kBlock], const float (&n)[kBlock],
                           const float (&z)[kBlock], uint64_t sample, float (&next)[kBlock]) const {
    constexpr int kLanes = kPhiloxBatch;
    for (uint64_t left = lanesWith(redo, 1u); left;) {
      int lane[kLanes];
      int lanes = 0;
      for (; left && lanes < kLanes; left &= left - 1) lane[lanes++] = __builtin_ctzll(left);
      float w[kLanes], signedCount[kLanes], xi[8][kLanes], response[kResponseMembers][kLanes];
      uint32_t cells[kLanes];
      float longest = 0.0f;
      for (int i = 0; i < kLanes; ++i) {
        const int j = lane[i < lanes ? i : 0];
        w[i] = w_[j];
        signedCount[i] = n[j];
        xi[0][i] = z[j];
        cells[i] = static_cast<uint32_t>(cell(j));
        for (int m = 0; m < kResponseMembers; ++m) response[m][i] = response_[m][j];
        longest = RPU::max(longest, RPU::abs(n[j]));
      }
      const int pulses = static_cast<int>(longest);
      for (int k = 0; k < pulses; ++k) {
        if (k % 8 == 0) laterNormals(cells, sample, k, pulses, xi);
        for (int i = 0; i < kLanes; ++i) {
          const Response r = gather(response, i);
          const float moved = onePulse<Device>(w[i], signedCount[i] > 0.0f, r, p_, xi[k & 7][i]);
          w[i] = static_cast<float>(k) < RPU::abs(signedCount[i]) ? moved : w[i];
        }
      }
      for (int i = 0; i < lanes; ++i) next[lane[i]] = w[i];
    }
  }

  /// The normals, as sequentialPulses() draws them, of the pulses from k, a multiple of 8, to k +
  /// 7, as far as they come before `pulses`. Leaves xi[0] alone if k is 0, because pulse 0 takes
  /// the sample's own normal.
  RPU_HD void laterNormals(const uint32_t (&cells)[kPhiloxBatch], uint64_t sample, int k,
                           int pulses, float (&xi)[8][kPhiloxBatch]) const {
    uint32_t samples[kPhiloxBatch];
    for (int i = 0; i < kPhiloxBatch; ++i) samples[i] = static_cast<uint32_t>(sample);
    PhiloxBatch batch;
    drawBatch(a_.key, Purpose::CyclePulse, cells, samples, static_cast<uint32_t>(sample >> 32),
              static_cast<uint32_t>(k >> 3), batch);
    for (int m = 0; m < 4 && k + 2 * m < pulses; ++m) {
      const bool keep = k == 0 && m == 0;
      for (int i = 0; i < kPhiloxBatch; ++i) {
        const NormalPair pair = normalPair16(batch.words[m][i]);
        if (!keep) xi[2 * m][i] = pair.z0;
        xi[2 * m + 1][i] = pair.z1;
      }
    }
  }

  template <int kLanes>
  static RPU_HD Response gather(const float (&members)[kResponseMembers][kLanes], int lane) {
    Response r;
    int m = 0;
    r.members([&](float &value) { value = members[m++][lane]; });
    return r;
  }

  const CellArray &a_;
  const Params &p_;
  const int64_t first_;
  const int count_;
  const int64_t row_, col_;  // of lane 0
  const bool oneRow_;
  float w_[kBlock];
  float response_[kResponseMembers][kBlock];
  uint32_t both_[kBlock], differ_[kBlock];
  uint32_t anyD_ = 0;
};

}  // namespace cpu
}  // namespace RPU
