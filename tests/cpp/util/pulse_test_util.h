#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "array/pulsed_weight_updater.h"
#include "core/isa.h"
#include "numerics/random.h"
#include "pulses/bit_line_maker.h"
#include "util/device_test_util.h"

// Shared code of the tests of pulse trains: inputs, and pulse words read bit by bit.

namespace pulsora::testing {

/// Parameters with these settings; others are the defaults.
inline UpdateParameters parametersFor(int desiredBl, bool um, bool ublm, bool fixedBl = true) {
  UpdateParameters p;
  p.desired_bl = desiredBl;
  p.update_management = um;
  p.update_bl_management = ublm;
  p.fixed_bl = fixedBl;
  return p;
}

/// A mini-batch of x [m, xSize] and d [m, dSize].
struct Batch {
  int64_t samples, xSize, dSize;
  std::vector<float> x, d;

  MatrixView<const float> xView() const { return rowMajor(x.data(), samples, xSize); }
  MatrixView<const float> dView() const { return rowMajor(d.data(), samples, dSize); }
  MatrixView<const float> xRows(int64_t begin, int64_t end) const {
    return rowMajor(&x[size_t(begin * xSize)], end - begin, xSize);
  }
  MatrixView<const float> dRows(int64_t begin, int64_t end) const {
    return rowMajor(&d[size_t(begin * dSize)], end - begin, dSize);
  }
};

/// Values in [-1, 1), one in eight of them 0, each sample scaled by a factor between 1 and 1/64.
inline Batch randomBatch(int64_t samples, int64_t xSize, int64_t dSize, uint64_t seed) {
  Batch b{samples, xSize, dSize, {}, {}};
  const auto fill = [&](std::vector<float> &values, int64_t lines, uint64_t what) {
    for (int64_t s = 0; s < samples; ++s) {
      const float size = std::ldexp(
          1.0f, -static_cast<int>(mixBits(seed + 77 * what + static_cast<uint64_t>(s)) % 7));
      for (int64_t j = 0; j < lines; ++j) {
        const uint64_t word =
            mixBits(mixBits(seed ^ what << 40) + static_cast<uint64_t>(s * lines + j));
        const float value = 2.0f * uniform(static_cast<uint32_t>(word)) - 1.0f;
        values.push_back((word >> 40) % 8 == 0 ? 0.0f : size * value);
      }
    }
  };
  fill(b.x, xSize, 1);
  fill(b.d, dSize, 2);
  return b;
}

/// A batch that repeats x and d in every sample.
inline Batch repeatedBatch(int64_t samples, const std::vector<float> &x,
                           const std::vector<float> &d) {
  Batch b{samples, static_cast<int64_t>(x.size()), static_cast<int64_t>(d.size()), {}, {}};
  for (int64_t s = 0; s < samples; ++s) {
    b.x.insert(b.x.end(), x.begin(), x.end());
    b.d.insert(b.d.end(), d.begin(), d.end());
  }
  return b;
}

/// Bit `slot` of sample `s` of a line in a bit plane.
inline bool planeBit(const PulseWords &p, const uint32_t *plane, int64_t lines, int64_t s,
                     int64_t line, int slot) {
  const PulseLayout &layout = *p.layout;
  const bool shared = layout.samplesPerWord > 1;
  const int64_t word = shared ? s / layout.samplesPerWord : s * layout.wordsPerSample + slot / 32;
  const int bit =
      shared ? static_cast<int>(s % layout.samplesPerWord) * layout.slots + slot : slot % 32;
  return (plane[word * lines + line] >> bit & 1) != 0;
}

/// The pulse of each line in each slot of its sample's pulse train, for any layout: -1, 0 or 1.
struct Trains {
  std::vector<int8_t> x, d, dNegativeX;

  bool operator==(const Trains &o) const {
    return x == o.x && d == o.d && dNegativeX == o.dNegativeX;
  }
  void append(const Trains &o) {
    x.insert(x.end(), o.x.begin(), o.x.end());
    d.insert(d.end(), o.d.begin(), o.d.end());
    dNegativeX.insert(dNegativeX.end(), o.dNegativeX.begin(), o.dNegativeX.end());
  }
};
inline Trains trainsOf(const PulseWords &p) {
  Trains trains;
  const auto read = [&](const uint32_t *bits, const uint32_t *signs, int64_t lines,
                        std::vector<int8_t> &out) {
    for (int64_t s = 0; s < p.samples; ++s) {
      for (int64_t line = 0; line < lines; ++line) {
        for (int slot = 0; slot < p.trainLength[s]; ++slot) {
          const bool negative = planeBit(p, signs, lines, s, line, slot);
          out.push_back(planeBit(p, bits, lines, s, line, slot)
                            ? static_cast<int8_t>(negative ? -1 : 1)
                            : int8_t{0});
        }
      }
    }
  };
  read(p.xBits, p.xSigns, p.xSize, trains.x);
  read(p.dBits, p.dSigns, p.dSize, trains.d);
  if (p.kind == PulseKind::TwoPass) read(p.dBitsNegativeX, p.dSigns, p.dSize, trains.dNegativeX);
  return trains;
}

/// Coincidences of cell (i, j) in sample s with the sign of the weight's change, counted slot by
/// slot.
inline int signedCount(const PulseWords &p, int64_t s, int64_t i, int64_t j) {
  if (p.kind == PulseKind::MeanCount || p.kind == PulseKind::Implicit) {
    const double length = p.trainLength[s];
    const double product =
        static_cast<double>(p.xLevels[s * p.xSize + j] * p.dLevels[s * p.dSize + i]);
    return -static_cast<int>(std::nearbyint(p.kind == PulseKind::Implicit ? product * length
                                            : length > 0.0                ? product / length
                                                                          : 0.0));
  }
  int count = 0;
  for (int slot = 0; slot < p.trainLength[s]; ++slot) {
    const bool negativeX = planeBit(p, p.xSigns, p.xSize, s, j, slot);
    const bool negativeD = planeBit(p, p.dSigns, p.dSize, s, i, slot);
    const uint32_t *dPlane = p.kind == PulseKind::TwoPass && negativeX ? p.dBitsNegativeX : p.dBits;
    const bool both =
        planeBit(p, p.xBits, p.xSize, s, j, slot) && planeBit(p, dPlane, p.dSize, s, i, slot);
    count += both ? (negativeX == negativeD ? -1 : 1) : 0;
  }
  return count;
}

/// A ConstantStep array without spreads, noise or bounds within reach.
inline DeviceParams idealDevice(double dwMin, double cycleNoise = 0.0) {
  return makeParams("ConstantStep",
                    withoutSpread("ConstantStep", {{"dw_min", Value(dwMin)},
                                                   {"dw_min_std", Value(cycleNoise)},
                                                   {"w_max", Value(1e6)},
                                                   {"w_min", Value(-1e6)}}));
}

inline Context onCpu(int threads, Isa isa = bestIsa()) {
  Context context;
  context.cpu.threads = threads;
  context.cpu.isa = isa;
  return context;
}

constexpr RandomKey kDeviceKey = {0x5EEDU, 0xA11CEU};
constexpr RandomKey kPulseTrainKey = {0xB17U, 0x11ABCU};

inline UpdateParameters typed(PulseType type, int desiredBl = 31) {
  UpdateParameters p;
  p.pulse_type = type;
  p.desired_bl = desiredBl;
  return p;
}

constexpr PulseType kPulseTypes[] = {
    PulseType::StochasticCompressed,  PulseType::Stochastic, PulseType::MeanCount,
    PulseType::DeterministicImplicit, PulseType::None,       PulseType::NoneWithDevice};

constexpr int64_t kRepetitions = 200000;  // N of the tests of moments; their thresholds are 5 sigma
inline const std::vector<float> kX = {0.9f, -0.5f, 0.25f, 0.1f};
inline const std::vector<float> kD = {0.8f, -0.4f, 0.3f};
constexpr float kLr = 0.01f;
constexpr float kDw = 0x1p-10f;  // a power of two, so that sums of pulses are exact in float

}  // namespace pulsora::testing
