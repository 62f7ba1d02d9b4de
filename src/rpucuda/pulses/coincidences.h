#pragma once

#include "numerics/math.h"
#include "pulses/pulse_words.h"

namespace pulsora {

/// Slots of word `word` in which the signs of the lines of cell (row, col) differ.
PULSORA_HD uint32_t slotsOfDifference(const PulseWords &p, int64_t word, int64_t row, int64_t col) {
  return p.xSigns[word * p.xSize + col] ^ p.dSigns[word * p.dSize + row];
}

/// Slots of word `word` in which both lines of cell (row, col) fire, and the cell takes a pulse.
PULSORA_HD uint32_t slotsOfBoth(const PulseWords &p, int64_t word, int64_t row, int64_t col) {
  uint32_t d = p.dBits[word * p.dSize + row];
  if (p.kind == PulseKind::TwoPass) {
    const uint32_t negative = p.xSigns[word * p.xSize + col];
    d = (d & ~negative) | (p.dBitsNegativeX[word * p.dSize + row] & negative);
  }
  const uint32_t both = p.xBits[word * p.xSize + col] & d;
  if (p.way == PulseWay::Both) return both;
  return both & slotsTaken(p.way, slotsOfDifference(p, word, row, col));
}

/// Slots of word `word` in which a coincidence of cell (row, col) would step up.
PULSORA_HD uint32_t slotsUp(const PulseWords &p, int64_t word, int64_t row, int64_t col) {
  return slotsTakenUp(p.way, slotsOfDifference(p, word, row, col));
}

/// Signed coincidences of cell (row, col) in one sample; negative steps down.
PULSORA_HD int32_t signedCoincidences(const PulseWords &p, const PulseLayout &layout,
                                      int64_t sample, int64_t row, int64_t col) {
  if (hasLevels(p.kind)) {
    return static_cast<int32_t>(countTaken(
        p.way, -levelCount(p.xLevels[sample * p.xSize + col], p.dLevels[sample * p.dSize + row],
                           levelScale(p.kind, p.trainLength[sample]))));
  }
  const SlotPlace at = SlotPlace::of(layout, sample);
  const uint32_t mask = slotMask(layout.slots);
  int32_t count = 0;
  for (int64_t word = at.word; word < at.word + layout.wordsPerSample; ++word) {
    count += static_cast<int32_t>(popcount((slotsOfBoth(p, word, row, col) >> at.shift) & mask));
  }
  return (slotsUp(p, at.word, row, col) >> at.shift & 1U) != 0 ? count : -count;
}

/// The first of the samples [sample, end) in which cell (row, col) may have coincidences, or `end`.
/// Words without coincidences are passed over at once.
PULSORA_HD int64_t nextCoincidences(const PulseWords &p, const PulseLayout &layout, int64_t sample,
                                    int64_t end, int64_t row, int64_t col) {
  if (hasLevels(p.kind) || layout.samplesPerWord == 1) return sample;
  while (sample < end) {
    const SlotPlace at = SlotPlace::of(layout, sample);
    const uint32_t left = slotsOfBoth(p, at.word, row, col) >> at.shift;
    if (left != 0) {
      // Slots before the first coincidence.
      const auto before = static_cast<int64_t>(popcount((left & (0U - left)) - 1U));
      return pulsora::min(sample + before / layout.slots, end);
    }
    sample = (at.word + 1) * layout.samplesPerWord;
  }
  return end;
}

}  // namespace pulsora
