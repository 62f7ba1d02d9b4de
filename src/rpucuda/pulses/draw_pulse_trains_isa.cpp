#include "numerics/philox_batch.h"
#include "numerics/simd_mask.h"
#include "pulses/draw_pulse_trains.h"

// SIMD lanes are lines of quads: four consecutive samples, which share a block of random words. If
// a side has few lines, several quads lie side by side, so that all lanes have work.

namespace pulsora {
namespace {

constexpr int kLanes = 64;

/// Four samples that share their random words.
struct Quad {
  int64_t first;  // index in the mini-batch of the block's sample 0; may lie before the mini-batch
  int begin;      // samples of the four that are to be drawn
  int end;
};

/// Neighbouring lines of a quad in neighbouring lanes.
struct Run {
  Quad quad;
  int64_t line;
  int lane;
  int count;
};

uint64_t lanesOf(const Run &run) {
  return (run.count == kLanes ? ~uint64_t{0} : (uint64_t{1} << run.count) - 1) << run.lane;
}

/// Draws the pulse trains of one side, `kLanes` lines of quads at a time.
class SideDrawer {
 public:
  /// With `signsOfPulsesAlone`, signs are written where lines have pulses, and perhaps elsewhere.
  SideDrawer(const PulseTrainSide &side, bool signsOfPulsesAlone)
      : side_(side), layout_(*side.layout), signsOfPulsesAlone_(signsOfPulsesAlone) {}

  /// Draws all lines of a quad, now or in a later call.
  void add(const Quad &quad) {
    int longest = 0;
    for (int q = quad.begin; q < quad.end; ++q) {
      const int length = side_.scales[quad.first + q].length;
      longest = length > longest ? length : longest;
    }
    if (longest == 0) return;
    const uint64_t block =
        (side_.firstSample + static_cast<uint64_t>(quad.first + quad.begin)) >> 2;
    if (block >> 32 != block_ >> 32) draw();
    block_ = block;
    for (int64_t line = 0; line < side_.values.cols;) {
      const int64_t left = side_.values.cols - line;
      const int room = kLanes - used_;
      const int count = left < room ? static_cast<int>(left) : room;
      load({quad, line, used_, count});
      longest_ = longest > longest_ ? longest : longest_;
      line += count;
      if (used_ == kLanes) draw();
    }
  }

  /// Draws the quads that have been added.
  void draw() {
    if (used_ == 0) return;
    for (int j = used_; j < kLanes; ++j) element_[j] = quad_[j] = 0;
    makeThresholds();
    for (int part = 0; part < layout_.wordsPerSample; ++part) {
      for (int q = 0; q < 4; ++q) {
        for (int j = 0; j < kLanes; ++j) word_[q][j] = 0;
      }
      const int rest = longest_ - part * 32;
      const int slots = rest < 32 ? rest : 32;
      for (int slot = 0; slot < slots; ++slot) drawSlot(part * 32 + slot);
      for (int r = 0; r < runs_; ++r) store(run_[r], part);
    }
    used_ = runs_ = longest_ = 0;
  }

 private:
  void load(const Run &run) {
    run_[runs_++] = run;
    used_ += run.count;
    const Quad &quad = run.quad;
    for (int j = 0; j < run.count; ++j) {
      element_[run.lane + j] = static_cast<uint32_t>(run.line) + static_cast<uint32_t>(j);
      quad_[run.lane + j] = static_cast<uint32_t>(block_);
    }
    for (int q = 0; q < 4; ++q) {
      const bool present = q >= quad.begin && q < quad.end;
      const PulseTrainScale t = present ? side_.scales[quad.first + q] : PulseTrainScale{};
      const float scale = side_.isX ? t.xScale : t.dScale;
      const float *row = present ? &side_.values(quad.first + q, run.line) : nullptr;
      const int64_t stride = side_.values.colStride;
      float *value = value_[q] + run.lane;
      if (!present) {
        for (int j = 0; j < run.count; ++j) value[j] = 0.0f;
      } else if (stride == 1) {
        for (int j = 0; j < run.count; ++j) value[j] = row[j];
      } else {
        for (int j = 0; j < run.count; ++j) value[j] = row[j * stride];
      }
      for (int j = 0; j < run.count; ++j) scale_[q][run.lane + j] = scale;
      for (int j = 0; j < run.count; ++j) length_[q][run.lane + j] = t.length;
    }
  }

  void makeThresholds() {
    for (int q = 0; q < 4; ++q) {
      float rounding[kLanes] = {};
      if (side_.stochasticRounding) {
        for (int j = 0; j < used_; ++j) {
          const uint64_t sample = (block_ >> 32 << 32 | quad_[j]) << 2 | static_cast<uint64_t>(q);
          rounding[j] = uniform(pulsora::draw(side_.key, side_.rounding, element_[j], sample).v[0]);
        }
      }
      for (int j = 0; j < kLanes; ++j) {
        const float p = pulseProbability(value_[q][j], scale_[q][j], side_.step,
                                         side_.stochasticRounding, rounding[j]);
        threshold_[q][j] = pulseThreshold(p);
        const uint32_t sent = length_[q][j] > 0 ? 0xffffffffu : 0u;
        negative_[q][j] =
            ((bitCast<uint32_t>(value_[q][j]) >> 31) != 0) != side_.negate ? sent : 0u;
      }
    }
  }

  void drawSlot(int slot) {
    const uint32_t index = side_.firstSlot + static_cast<uint32_t>(slot);
    const auto high = static_cast<uint32_t>(block_ >> 32);
    for (int j = 0; j < used_; j += kPhiloxBatch) {
      uint32_t elements[kPhiloxBatch];
      uint32_t quads[kPhiloxBatch];
      for (int k = 0; k < kPhiloxBatch; ++k) elements[k] = element_[j + k];
      for (int k = 0; k < kPhiloxBatch; ++k) quads[k] = quad_[j + k];
      PhiloxBatch batch;  // slotWords() of 16 lanes
      drawBatch(side_.key, side_.pulses, elements, quads, high, index, batch);
      for (int q = 0; q < 4; ++q) {
        for (int k = 0; k < kPhiloxBatch; ++k) random_[q][j + k] = batch.words[q][k];
      }
    }
    for (int q = 0; q < 4; ++q) {
      for (int j = 0; j < kLanes; ++j) {
        const uint32_t within = slot < length_[q][j] ? 1u : 0u;
        word_[q][j] |= (slotFires(random_[q][j], threshold_[q][j]) & within) << (slot & 31);
      }
    }
  }

  void store(const Run &run, int part) const {
    for (int q = run.quad.begin; q < run.quad.end; ++q) {
      const bool silent = (lanesWith(word_[q], 0xffffffffu) & lanesOf(run)) == 0;
      if (silent && signsOfPulsesAlone_) continue;
      const SlotPlace place = SlotPlace::of(layout_, run.quad.first + q);
      const int64_t at = (place.word + part) * side_.values.cols + run.line;
      const uint32_t mask = slotMask(layout_.slots) << place.shift;
      addBits(side_.bits + at, word_[q] + run.lane, place.shift, 0xffffffffu, run.count);
      if (!side_.signs) continue;
      addBits(side_.signs + at, negative_[q] + run.lane, 0, mask, run.count);
    }
  }

  static void addBits(uint32_t *__restrict to, const uint32_t *__restrict bits, int shift,
                      uint32_t mask, int count) {
    for (int j = 0; j < count; ++j) to[j] |= bits[j] << shift & mask;
  }

  const PulseTrainSide &side_;
  const PulseLayout layout_;
  const bool signsOfPulsesAlone_;
  uint64_t block_ = 0;  // of random words; all quads in the lanes share its upper half
  int used_ = 0;        // lanes
  int runs_ = 0;
  int longest_ = 0;
  Run run_[kLanes];
  // By lane:
  uint32_t element_[kLanes];
  uint32_t quad_[kLanes];
  float value_[4][kLanes] = {};
  float scale_[4][kLanes] = {};
  int32_t length_[4][kLanes] = {};
  uint32_t threshold_[4][kLanes];
  uint32_t negative_[4][kLanes];
  uint32_t random_[4][kLanes] = {};
  uint32_t word_[4][kLanes];
};

/// Finds slots in which any line of the given sides fires; the latest word is kept.
class Firing {
 public:
  Firing(const PulseTrainSide *sides, int count) : sides_(sides), count_(count) {}

  /// Whether a line fires in the samples of a quad.
  bool within(const Quad &quad) {
    const PulseLayout layout = *sides_[0].layout;
    for (int q = quad.begin; q < quad.end; ++q) {
      const SlotPlace place = SlotPlace::of(layout, quad.first + q);
      for (int part = 0; part < layout.wordsPerSample; ++part) {
        if ((any(place.word + part) & slotMask(layout.slots) << place.shift) != 0) return true;
      }
    }
    return false;
  }

 private:
  uint32_t any(int64_t word) {
    if (word == word_) return any_;
    word_ = word;
    any_ = 0;
    for (int i = 0; i < count_; ++i) {
      const int64_t lines = sides_[i].values.cols;
      const uint32_t *bits = sides_[i].bits + word * lines;
      for (int64_t j = 0; j < lines; ++j) any_ |= bits[j];
    }
    return any_;
  }

  const PulseTrainSide *sides_;
  int count_;
  int64_t word_ = -1;
  uint32_t any_ = 0;
};

/// Draws a side for the samples [begin, end); with `others`, only the quads in which those fire.
void drawSide(const PulseTrainSide &side, Firing *others, bool signsOfPulsesAlone, int64_t begin,
              int64_t end) {
  SideDrawer drawer(side, signsOfPulsesAlone);
  const auto phase = static_cast<int64_t>((side.firstSample + static_cast<uint64_t>(begin)) & 3U);
  for (int64_t first = begin - phase; first < end; first += 4) {
    const Quad quad{first, first < begin ? static_cast<int>(begin - first) : 0,
                    end - first < 4 ? static_cast<int>(end - first) : 4};
    if (!others || others->within(quad)) drawer.add(quad);
  }
  drawer.draw();
}

}  // namespace

template <>
void drawPulseTrains<Isa::PULSORA_ISA>(const PulseTrainSide *sides, int count,
                                       bool coincidencesAlone, int64_t begin, int64_t end) {
  if (!coincidencesAlone) {
    for (int i = 0; i < count; ++i) drawSide(sides[i], nullptr, false, begin, end);
    return;
  }
  // A sign of d belongs to the pulses of both passes, and the sign of a sample's first word to all
  // of its words.
  const bool signsOfPulsesAlone = count == 2 && sides[0].layout->wordsPerSample == 1;
  // The side with fewer lines first: the other side is drawn only where the first one fires.
  const PulseTrainSide &x = sides[0];
  if (x.values.cols < sides[1].values.cols) {
    drawSide(x, nullptr, signsOfPulsesAlone, begin, end);
    Firing firing(&x, 1);
    for (int i = 1; i < count; ++i) drawSide(sides[i], &firing, signsOfPulsesAlone, begin, end);
  } else {
    for (int i = 1; i < count; ++i) drawSide(sides[i], nullptr, signsOfPulsesAlone, begin, end);
    Firing firing(sides + 1, count - 1);
    drawSide(x, &firing, signsOfPulsesAlone, begin, end);
  }
}

}  // namespace pulsora
