#pragma once

#include "array/cpu/lanes.h"

namespace pulsora {
namespace cpu {

/// kBlock neighbouring cells during an update: lanes, and the pulse words of their lines.
template <Isa isa, class Device>
class Block : public Lanes<isa, Device> {
  using Base = Lanes<isa, Device>;
  using Base::a_;
  using Base::cells_;
  using Base::w_;

 public:
  using typename Base::Params;

  PULSORA_HD Block(const CellArray &array, const Params &params, int64_t first, int count)
      : Base(array, params),
        first_(first),
        count_(count),
        row_(first / array.cols),
        col_(first % array.cols),
        oneRow_(col_ + count <= array.cols) {
    for (int j = 0; j < kBlock; ++j)
      cells_[j] = static_cast<uint32_t>(first) + static_cast<uint32_t>(j);
  }

  int count() const { return count_; }

  // --- weights and responses

  /// Reads weights and derives responses; with kAtMostOne, without the members that only samples of
  /// several pulses need.
  template <bool kAtMostOne>
  PULSORA_HD void load() {
    float members[Base::kCellMembers][kBlock];
    for (int m = 0; m < Base::kCellMembers; ++m) {
      const uint16_t *plane = a_.cells + m * a_.size() + first_;
      if (count_ == kBlock) {
        for (int j = 0; j < kBlock; ++j) members[m][j] = halfToFloat(plane[j]);
      } else {
        for (int j = 0; j < kBlock; ++j) members[m][j] = 1.0f;
        for (int j = 0; j < count_; ++j) members[m][j] = halfToFloat(plane[j]);
      }
    }
    Base::template respond<kAtMostOne>(members);
    for (int j = 0; j < kBlock; ++j) w_[j] = 0.0f;
    for (int j = 0; j < count_; ++j) w_[j] = a_.weights[first_ + j];
  }

  PULSORA_HD void store() const { copyWeights(a_.weights + first_); }
  /// Writes the weights of the lanes to to[0] ... to[count() - 1].
  PULSORA_HD void copyWeights(float *to) const {
    for (int j = 0; j < count_; ++j) to[j] = w_[j];
  }

  // --- lines

  /// Reads one word of every lane's lines. False if none of the d lines has a pulse in it; the
  /// words are then unchanged.
  PULSORA_HD bool loadWord(const PulseWords &p, int64_t word) {
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
    if (p.way != PulseWay::Both) takeOneWay(p.way);
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
  PULSORA_HD void countLevels(const PulseWords &p, int64_t s, float (&n)[kBlock]) const {
    const float *x = p.xLevels + s * p.xSize;
    const float *d = p.dLevels + s * p.dSize;
    const float scale = levelScale(p.kind, p.trainLength[s]);
    int64_t row = row_;
    int64_t col = col_;
    for (int j = 0; j < kBlock; ++j) {
      // Equal signs step the cell down.
      n[j] = j < count_ ? countTaken(p.way, -levelCount(x[col], d[row], scale)) : 0.0f;
      if (j + 1 < count_ && ++col == a_.cols) {
        col = 0;
        ++row;
      }
    }
  }

  // --- pulses

  /// Coincidences of one lane in a sample of the word loaded last: in the slots from `shift` on,
  /// under `mask` once shifted.
  template <bool kAtMostOne>
  PULSORA_HD uint32_t pulsesOf(int lane, int shift, uint32_t mask) const {
    const uint32_t bits = (both_[lane] >> shift) & mask;
    return kAtMostOne ? bits : popcount(bits);
  }
  /// `count` coincidences with their sign; negative is down.
  PULSORA_HD float signedCount(int lane, int shift, uint32_t count) const {
    const uint32_t down = ~(differ_[lane] >> shift) << 31;
    return bitCast<float>(bitCast<uint32_t>(static_cast<float>(static_cast<int32_t>(count))) |
                          down);
  }
  /// signedCount() of pulsesOf() for every lane, in n; adds the number of pulses to `pulses`.
  PULSORA_HD void count(int shift, uint32_t mask, float (&n)[kBlock],
                        uint32_t (&pulses)[kBlock]) const {
    for (int j = 0; j < kBlock; ++j) {
      const uint32_t count = pulsesOf<false>(j, shift, mask);
      pulses[j] += count;
      n[j] = signedCount(j, shift, count);
    }
  }

 private:
  PULSORA_HD void takeOneWay(PulseWay way) {
    for (int j = 0; j < kBlock; ++j) {
      both_[j] &= slotsTaken(way, differ_[j]);
      differ_[j] = slotsTakenUp(way, differ_[j]);
    }
  }

  const int64_t first_;
  const int count_;
  const int64_t row_, col_;  // of lane 0
  const bool oneRow_;
  uint32_t both_[kBlock], differ_[kBlock];
  uint32_t anyD_ = 0;
};

}  // namespace cpu
}  // namespace pulsora
