#pragma once

#include <cstdint>

#include "core/platform.h"
#include "numerics/math.h"

namespace pulsora {

/// Words that may be read behind the last line of a bit plane, so that vector loads need no tail.
constexpr int kPulsePadding = 64;

/// How a mini-batch of x and d becomes pulses.
enum class PulseKind : int {
  Words,      ///< stochastic pulse trains; coincidences are counted bit by bit
  TwoPass,    ///< as Words, with other pulse trains on the d lines for negative x
  MeanCount,  ///< n = round(n_x n_d / BL) from the mean counts of each line
  Implicit,   ///< n = round(BL x_q d_q) from quantised values
};

/// Whether lines send levels, from which coincidences are computed, instead of bits.
PULSORA_HD bool hasLevels(PulseKind kind) {
  return kind == PulseKind::MeanCount || kind == PulseKind::Implicit;
}

/// The coincidences that an array takes.
enum class PulseWay : int {
  Both,      ///< all, up and down
  Up,        ///< those up alone
  DownAsUp,  ///< those down alone, as pulses up
};

/// The slots of a word whose coincidences an array takes, and those in which they step up; `up`
/// are the slots in which a coincidence is one up.
PULSORA_HD uint32_t slotsTaken(PulseWay way, uint32_t up) {
  return way == PulseWay::Both ? ~0u : (way == PulseWay::Up ? up : ~up);
}
PULSORA_HD uint32_t slotsTakenUp(PulseWay way, uint32_t up) {
  return way == PulseWay::Both ? up : ~0u;
}
/// The pulses that an array takes of `n` signed coincidences, negative ones down.
PULSORA_HD float countTaken(PulseWay way, float n) {
  if (way == PulseWay::Both) return n;
  return pulsora::max(way == PulseWay::Up ? n : -n, 0.0f);
}

/// Layout of slots in words. It follows from the longest pulse train of a mini-batch; on a GPU,
/// only the device knows it.
struct PulseLayout {
  int slots = 1;  // per sample: the length of the mini-batch's longest pulse train
  int samplesPerWord = 32;
  int wordsPerSample = 1;

  /// Pulse trains of up to 16 slots share words; longer ones take one or several words each.
  PULSORA_HD static PulseLayout of(int slots) {
    slots = slots < 1 ? 1 : slots;
    return {slots, slots <= 16 ? 32 / slots : 1, (slots + 31) / 32};
  }
  PULSORA_HD int64_t words(int64_t samples) const {
    return samplesPerWord > 1 ? (samples + samplesPerWord - 1) / samplesPerWord
                              : samples * wordsPerSample;
  }
};

/// Position of a sample's first slot.
struct SlotPlace {
  int64_t word;
  int shift;

  PULSORA_HD static SlotPlace of(const PulseLayout &layout, int64_t sample) {
    if (layout.samplesPerWord == 1) return {sample * layout.wordsPerSample, 0};
    const auto s = static_cast<uint32_t>(sample);  // 2^32 samples fit no memory
    const auto perWord = static_cast<uint32_t>(layout.samplesPerWord);
    return {s / perWord, static_cast<int>(s % perWord) * layout.slots};
  }
};

/// The numbers of a mini-batch's samples, counted over the life of an array: [first, first + room).
/// If `present` is not null, it points to GPU memory that holds how many samples exist; the rest of
/// the range sends no pulses.
struct SampleRange {
  uint64_t first;
  int64_t room;
  const int64_t *present;
};

/// A mini-batch's pulses as the update kernels read them; a view of a BitLineMaker's storage.
///
/// Bit planes are [word][line], padded by kPulsePadding words at the end. A word holds
/// `samplesPerWord` samples of `slots` bits each, the first sample in the low bits; if a sample
/// needs more than 32 slots it takes `wordsPerSample` words (and samplesPerWord is 1). The order of
/// bits is the order of pulses. A sign bit is set where the line's value is negative; a coincidence
/// of equal signs steps the cell down, of different signs up (gradient descent for a positive
/// learning rate).
///
/// Levels are [sample][line]: signed mean counts (MeanCount) or signed quantised values in [-1, 1]
/// (Implicit), with `trainLength` slots per sample.
struct PulseWords {
  PulseKind kind = PulseKind::Words;
  PulseWay way = PulseWay::Both;
  const PulseLayout *layout = nullptr;  // in the memory of the backend, like everything below
  int64_t samples = 0;
  int64_t xSize = 0;
  int64_t dSize = 0;
  uint64_t firstSample = 0;          // global index of sample 0
  uint64_t endSample = 0;            // global index of the first sample after the mini-batch
  const int64_t *present = nullptr;  // see SampleRange
  const uint32_t *xBits = nullptr;
  const uint32_t *xSigns = nullptr;
  const uint32_t *dBits = nullptr;
  const uint32_t *dSigns = nullptr;
  const uint32_t *dBitsNegativeX = nullptr;  // TwoPass only
  const float *xLevels = nullptr;
  const float *dLevels = nullptr;
  const int32_t *trainLength = nullptr;  // [sample]

  PULSORA_HD int64_t sampleCount() const { return present ? *present : samples; }
};

/// Deterministic pulse types: coincidences of two lines in one sample, from their levels and the
/// sample's scale; negative where the signs differ.
PULSORA_HD float levelScale(PulseKind kind, int32_t trainLength) {
  const float length = static_cast<float>(trainLength);
  return kind == PulseKind::MeanCount ? (length > 0.0f ? 1.0f / length : 0.0f) : length;
}
PULSORA_HD float levelCount(float x, float d, float scale) { return pulsora::rint(x * d * scale); }

/// Slots of one sample, as a mask for the low bits of a word.
PULSORA_HD uint32_t slotMask(int slots) { return slots >= 32 ? 0xffffffffu : (1u << slots) - 1u; }

}  // namespace pulsora
