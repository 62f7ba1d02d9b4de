#include "core/philox_batch.h"
#include "pulses/draw_trains.h"

// Lanes are neighbouring lines. Four consecutive samples share a block of random words, so samples
// are taken by fours.

namespace RPU {
namespace {

constexpr int kLanes = 64;

struct Quad {
  int64_t first;  // index in the mini-batch of the block's sample 0; may lie before the mini-batch
  int begin;      // samples of the four that belong to it
  int end;
  int longest;
};

void loadThresholds(const TrainSide &side, const Quad &quad, int64_t line, int count,
                    uint32_t (&threshold)[4][kLanes], uint32_t (&negative)[4][kLanes]) {
  for (int q = quad.begin; q < quad.end; ++q) {
    const int64_t s = quad.first + q;
    const TrainScale t = side.scales[s];
    const float scale = side.isX ? t.xScale : t.dScale;
    const uint32_t sent = t.length > 0 ? 0xffffffffu : 0u;
    const float *row = &side.values(s, line);
    const int64_t stride = side.values.colStride;
    float value[kLanes];
    for (int j = 0; j < kLanes; ++j)
      value[j] = j < count ? row[(j < count ? j : 0) * stride] : 0.0f;
    float rounding[kLanes] = {};
    if (side.stochasticRounding) {
      const uint64_t sample = side.firstSample + static_cast<uint64_t>(s);
      for (int j = 0; j < kLanes; ++j) {
        const uint32_t element = static_cast<uint32_t>(line) + static_cast<uint32_t>(j);
        rounding[j] = uniform(draw(side.key, side.rounding, element, sample).v[0]);
      }
    }
    for (int j = 0; j < kLanes; ++j) {
      const float p =
          pulseProbability(value[j], scale, side.step, side.stochasticRounding, rounding[j]);
      threshold[q][j] = pulseThreshold(p);
      negative[q][j] = ((bitCast<uint32_t>(value[j]) >> 31) != 0) != side.negate ? sent : 0u;
    }
  }
}

/// slotWords() of 16 neighbouring lines.
RPU_HD void slotWordsBatch(RandomKey key, Purpose purpose, uint32_t line, uint64_t sample,
                           uint32_t slot, PhiloxBatch &batch) {
  drawBatch(key, purpose, line, sample >> 2, slot, batch);
}

void drawLines(const TrainSide &side, const Quad &quad, int64_t line, int count) {
  uint32_t threshold[4][kLanes];
  uint32_t negative[4][kLanes];
  uint32_t random[4][kLanes];
  uint32_t word[4][kLanes];
  PhiloxBatch batch;
  loadThresholds(side, quad, line, count, threshold, negative);
  const PulseLayout layout = *side.layout;
  const int64_t lines = side.values.cols;
  const uint64_t sample0 = side.firstSample + static_cast<uint64_t>(quad.first + quad.begin);
  for (int part = 0; part < layout.wordsPerSample; ++part) {
    for (int q = quad.begin; q < quad.end; ++q) {
      for (int j = 0; j < kLanes; ++j) word[q][j] = 0;
    }
    const int slots = quad.longest - part * 32 < 32 ? quad.longest - part * 32 : 32;
    for (int slot = 0; slot < slots; ++slot) {
      const uint32_t index = side.firstSlot + static_cast<uint32_t>(part * 32 + slot);
      for (int j = 0; j < kLanes; j += kPhiloxBatch) {
        slotWordsBatch(side.key, side.pulses, static_cast<uint32_t>(line + j), sample0, index,
                       batch);
        for (int q = 0; q < 4; ++q) {
          for (int k = 0; k < kPhiloxBatch; ++k) random[q][j + k] = batch.words[q][k];
        }
      }
      for (int q = quad.begin; q < quad.end; ++q) {
        if (part * 32 + slot >= side.scales[quad.first + q].length) continue;
        for (int j = 0; j < kLanes; ++j)
          word[q][j] |= slotFires(random[q][j], threshold[q][j]) << slot;
      }
    }
    for (int q = quad.begin; q < quad.end; ++q) {
      const SlotPlace place = SlotPlace::of(layout, quad.first + q);
      const int64_t at = (place.word + part) * lines + line;
      const uint32_t mask = slotMask(layout.slots) << place.shift;
      for (int j = 0; j < count; ++j) side.bits[at + j] |= word[q][j] << place.shift;
      if (side.signs) {
        for (int j = 0; j < count; ++j) side.signs[at + j] |= negative[q][j] & mask;
      }
    }
  }
}

}  // namespace

template <>
void drawTrains<Isa::PULSORA_ISA>(const TrainSide &side, int64_t begin, int64_t end) {
  const int64_t samples = side.values.rows;
  const int phase = static_cast<int>(side.firstSample & 3);
  for (int64_t first = -phase; first < samples; first += 4) {
    Quad quad{first, first < 0 ? phase : 0,
              samples - first < 4 ? static_cast<int>(samples - first) : 4, 0};
    for (int q = quad.begin; q < quad.end; ++q) {
      const int length = side.scales[first + q].length;
      quad.longest = length > quad.longest ? length : quad.longest;
    }
    if (quad.longest == 0) continue;
    for (int64_t line = begin; line < end; line += kLanes) {
      drawLines(side, quad, line, static_cast<int>(end - line < kLanes ? end - line : kLanes));
    }
  }
}

}  // namespace RPU
