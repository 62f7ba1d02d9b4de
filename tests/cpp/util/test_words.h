#pragma once

#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "numerics/random.h"
#include "pulses/pulse_words.h"

namespace pulsora::testing {

/// A mini-batch of pulses, written down slot by slot; `slots` of each sample.
class TestWords {
 public:
  TestWords(int64_t rows, int64_t cols, int64_t samples, int slots, uint64_t firstSample = 0)
      : layout_(PulseLayout::of(slots)),
        rows_(rows),
        cols_(cols),
        samples_(samples),
        firstSample_(firstSample) {
    for (auto *plane : {&xBits_, &xSigns_}) plane->assign(planeSize(cols), 0);
    for (auto *plane : {&dBits_, &dSigns_, &dBitsNegativeX_}) plane->assign(planeSize(rows), 0);
  }

  /// Every line fires in every slot; all pulses go up, or all go down.
  static TestWords all(int64_t rows, int64_t cols, int64_t samples, int slots, bool up,
                       uint64_t first = 0) {
    TestWords w(rows, cols, samples, slots, first);
    for (int64_t s = 0; s < samples; ++s) {
      for (int64_t j = 0; j < cols; ++j)
        w.setLine(w.xBits_, w.xSigns_, cols, s, j, ~uint64_t{0}, false);
      for (int64_t i = 0; i < rows; ++i)
        w.setLine(w.dBits_, w.dSigns_, rows, s, i, ~uint64_t{0}, up);
    }
    return w;
  }

  /// Reverses all pulses of the samples [begin, end).
  void turn(int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      for (int slot = 0; slot < layout_.slots; ++slot) {
        const auto [word, bit] = place(s, slot);
        for (int64_t i = 0; i < rows_; ++i)
          dSigns_[static_cast<size_t>(word * rows_ + i)] ^= 1u << bit;
      }
    }
  }

  /// Random trains: slot bits and signs are functions of (seed, line, global sample), so that any
  /// part of a batch is the part of the whole. `dense` is the share of slots that fire, in eighths.
  static TestWords random(int64_t rows, int64_t cols, int64_t samples, int slots, uint64_t seed,
                          uint64_t first = 0, unsigned dense = 4) {
    TestWords w(rows, cols, samples, slots, first);
    const auto bits = [&](uint64_t line, uint64_t sample, uint64_t what) {
      uint64_t train = 0;
      for (uint64_t slot = 0; slot < static_cast<uint64_t>(slots); ++slot) {
        const uint64_t word = mixBits(mixBits(mixBits(seed + what) ^ line) ^ (sample << 8 | slot));
        train |= static_cast<uint64_t>((word >> 20) % 8 < dense) << slot;
      }
      return train;
    };
    const auto sign = [&](uint64_t line, uint64_t sample, uint64_t what) {
      return (mixBits(mixBits(mixBits(seed + what) ^ line) ^ sample) >> 30 & 1) != 0;
    };
    for (int64_t s = 0; s < samples; ++s) {
      const uint64_t global = first + static_cast<uint64_t>(s);
      for (int64_t j = 0; j < cols; ++j) {
        const auto line = static_cast<uint64_t>(j);
        w.setLine(w.xBits_, w.xSigns_, cols, s, j, bits(line, global, 1), sign(line, global, 2));
      }
      for (int64_t i = 0; i < rows; ++i) {
        const auto line = static_cast<uint64_t>(i);
        w.setLine(w.dBits_, w.dSigns_, rows, s, i, bits(line, global, 3), sign(line, global, 4));
        w.setLine(w.dBitsNegativeX_, w.dSigns_, rows, s, i, bits(line, global, 5),
                  sign(line, global, 4));
      }
    }
    return w;
  }

  /// Makes the words another kind: TwoPass with these pulses, or levels drawn from `seed`.
  TestWords &as(PulseKind kind, uint64_t seed = 0) {
    kind_ = kind;
    if (kind == PulseKind::MeanCount || kind == PulseKind::Implicit) {
      const auto level = [&](uint64_t line, int64_t s, uint64_t what) {
        const uint64_t sample = firstSample_ + static_cast<uint64_t>(s);
        const uint64_t word = mixBits(mixBits(mixBits(seed + what) ^ line) ^ sample);
        const float value = 2.0f * uniform(static_cast<uint32_t>(word)) - 1.0f;
        return kind == PulseKind::Implicit
                   ? value
                   : std::nearbyint(value * static_cast<float>(layout_.slots));
      };
      for (int64_t s = 0; s < samples_; ++s) {
        for (int64_t j = 0; j < cols_; ++j)
          xLevels_.push_back(level(static_cast<uint64_t>(j), s, 1));
        for (int64_t i = 0; i < rows_; ++i)
          dLevels_.push_back(level(static_cast<uint64_t>(i), s, 2));
        trainLength_.push_back(layout_.slots);
      }
    }
    return *this;
  }

  /// Restricts the coincidences that an array takes.
  TestWords &taken(PulseWay way) {
    way_ = way;
    return *this;
  }

  /// Random direction per row and sample, every line firing in its one slot.
  static TestWords randomDirections(int64_t rows, int64_t cols, int64_t samples, uint64_t seed,
                                    uint64_t first) {
    TestWords w = all(rows, cols, samples, 1, false, first);
    for (int64_t s = 0; s < samples; ++s) {
      for (int64_t i = 0; i < rows; ++i) {
        const uint64_t key = (first + static_cast<uint64_t>(s)) << 24 | static_cast<uint64_t>(i);
        w.setLine(w.dBits_, w.dSigns_, rows, s, i, ~uint64_t{0},
                  (mixBits(seed ^ mixBits(key)) & 1) != 0);
      }
    }
    return w;
  }

  /// One sample that sends counts[k] pulses, at most `slots`, to the k-th cell of a line, a column
  /// or a row; negative ones go down.
  static TestWords onLine(int64_t rows, int64_t cols, bool columns, int64_t line,
                          const float *counts, int slots, uint64_t first) {
    TestWords w(rows, cols, 1, slots, first);
    const auto train = [](float n) { return (uint64_t{1} << static_cast<int>(std::abs(n))) - 1; };
    if (columns) {
      w.setLine(w.xBits_, w.xSigns_, cols, 0, line, ~uint64_t{0}, false);
      for (int64_t k = 0; k < rows; ++k)
        w.setLine(w.dBits_, w.dSigns_, rows, 0, k, train(counts[k]), counts[k] > 0.0f);
    } else {
      w.setLine(w.dBits_, w.dSigns_, rows, 0, line, ~uint64_t{0}, false);
      for (int64_t k = 0; k < cols; ++k)
        w.setLine(w.xBits_, w.xSigns_, cols, 0, k, train(counts[k]), counts[k] > 0.0f);
    }
    return w;
  }

  PulseWords view() const {
    PulseWords p;
    p.kind = kind_;
    p.way = way_;
    p.layout = &layout_;
    p.samples = samples_;
    p.xSize = cols_;
    p.dSize = rows_;
    p.firstSample = firstSample_;
    p.endSample = firstSample_ + static_cast<uint64_t>(samples_);
    p.xBits = xBits_.data();
    p.xSigns = xSigns_.data();
    p.dBits = dBits_.data();
    p.dSigns = dSigns_.data();
    p.dBitsNegativeX = dBitsNegativeX_.data();
    p.xLevels = xLevels_.data();
    p.dLevels = dLevels_.data();
    p.trainLength = trainLength_.data();
    return p;
  }

  /// Signed pulses that cell (i, j) takes in sample s: positive ones step up.
  int coincidences(int64_t s, int64_t i, int64_t j) const {
    const int all = allCoincidences(s, i, j);
    if (way_ == PulseWay::Both) return all;
    const bool up = way_ == PulseWay::Up;
    return (all > 0) == up ? std::abs(all) : 0;
  }

  /// Signed coincidences of cell (i, j) in sample s, bit by bit: positive steps up.
  int allCoincidences(int64_t s, int64_t i, int64_t j) const {
    if (kind_ == PulseKind::MeanCount || kind_ == PulseKind::Implicit) {
      const float length = static_cast<float>(layout_.slots);
      const float scale = kind_ == PulseKind::MeanCount ? 1.0f / length : length;
      return -static_cast<int>(std::nearbyint(xLevels_[static_cast<size_t>(s * cols_ + j)] *
                                              dLevels_[static_cast<size_t>(s * rows_ + i)] *
                                              scale));
    }
    int count = 0;
    bool up = false;
    for (int slot = 0; slot < layout_.slots; ++slot) {
      const auto [word, bit] = place(s, slot);
      const auto x = static_cast<size_t>(word * cols_ + j);
      const auto d = static_cast<size_t>(word * rows_ + i);
      const bool negativeX = (xSigns_[x] >> bit & 1) != 0;
      const auto &dPlane = kind_ == PulseKind::TwoPass && negativeX ? dBitsNegativeX_ : dBits_;
      count += static_cast<int>(xBits_[x] >> bit & dPlane[d] >> bit & 1);
      up = negativeX != ((dSigns_[d] >> bit & 1) != 0);
    }
    return up ? count : -count;
  }

 private:
  size_t planeSize(int64_t lines) const {
    return static_cast<size_t>(layout_.words(samples_) * lines + kPulsePadding);
  }
  std::pair<int64_t, int> place(int64_t s, int slot) const {
    if (layout_.samplesPerWord > 1) {
      return {s / layout_.samplesPerWord,
              static_cast<int>(s % layout_.samplesPerWord) * layout_.slots + slot};
    }
    return {s * layout_.wordsPerSample + slot / 32, slot % 32};
  }
  void setLine(std::vector<uint32_t> &bits, std::vector<uint32_t> &signs, int64_t lines, int64_t s,
               int64_t line, uint64_t train, bool negative) {
    for (int slot = 0; slot < layout_.slots; ++slot) {
      const auto [word, bit] = place(s, slot);
      const auto at = static_cast<size_t>(word * lines + line);
      const uint32_t mask = 1u << bit;
      bits[at] = (bits[at] & ~mask) | (train >> slot & 1 ? mask : 0u);
      signs[at] = (signs[at] & ~mask) | (negative ? mask : 0u);
    }
  }

  PulseKind kind_ = PulseKind::Words;
  PulseWay way_ = PulseWay::Both;
  PulseLayout layout_;
  int64_t rows_, cols_, samples_;
  uint64_t firstSample_;
  std::vector<uint32_t> xBits_, xSigns_, dBits_, dSigns_, dBitsNegativeX_;
  std::vector<float> xLevels_, dLevels_;
  std::vector<int32_t> trainLength_;
};

}  // namespace pulsora::testing
