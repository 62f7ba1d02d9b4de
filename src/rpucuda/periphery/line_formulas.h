#pragma once

#include <cstdint>

#include "core/platform.h"
#include "core/view.h"
#include "numerics/math.h"
#include "numerics/random.h"
#include "periphery/io_parameters.h"

// The periphery of a read, one element at a time: each formula of docs/reference/io.md stands here,
// once. The row loops of the CPU (read_kernels_isa.cpp) and the functors for other backends
// (read_stages.h) are made of these functions and give the same bits.
//
// A parameter at its neutral value makes its formula an exact identity, so that no formula
// branches.

namespace pulsora {

/// Levels and range of a DAC or ADC.
struct Converter {
  float step = 0.0f;     ///< distance between levels; 0 is continuous
  float perUnit = 0.0f;  ///< levels per unit, 1 / step
  float bound = kInfinity;
  bool stochastic = false;

  Converter() = default;
  Converter(double step_, float bound_, bool stochastic_)
      : step(static_cast<float>(step_)),
        perUnit(step_ > 0.0 ? static_cast<float>(1.0 / step_) : 0.0f),
        bound(bound_ > 0.0f ? bound_ : kInfinity),
        stochastic(stochastic_) {}
};

/// The level of the converter that is nearest to v, as a number of steps.
PULSORA_HD float nearestLevel(const Converter &c, float v) { return rint(v * c.perUnit); }

/// v rounded to a level of the converter: the nearest; or, if stochastic, the lower or upper
/// neighbour such that the mean is v, with u uniform in [0, 1).
PULSORA_HD float quantised(const Converter &c, float v, float u) {
  const float whole = select(c.stochastic, floor(v * c.perUnit + u), nearestLevel(c, v));
  return select(c.step > 0.0f, whole * c.step, v);
}

// --- scales

/// A row is reduced in 16 parts: element j goes to part j % 16, in order, then the parts are
/// combined pairwise. The bits of a sum depend on this order.
constexpr int kReduceLanes = 16;

namespace reduce {

struct Sum {
  static constexpr float kStart = 0.0f;
  PULSORA_HD static float add(float part, float v) { return part + v; }
  PULSORA_HD static float join(float a, float b) { return a + b; }
};
struct Squares : Sum {
  PULSORA_HD static float add(float part, float v) { return part + v * v; }
};
struct PositiveSum : Sum {
  PULSORA_HD static float add(float part, float v) { return part + max(v, 0.0f); }
};
struct NegativeSum : Sum {
  PULSORA_HD static float add(float part, float v) { return part + max(-v, 0.0f); }
};
struct Largest {
  static constexpr float kStart = -kInfinity;
  PULSORA_HD static float add(float part, float v) { return max(part, v); }
  PULSORA_HD static float join(float a, float b) { return max(a, b); }
};
struct AbsLargest : Largest {
  static constexpr float kStart = 0.0f;
  PULSORA_HD static float add(float part, float v) { return max(part, abs(v)); }
};

}  // namespace reduce

/// The reduction of a row by a rule of namespace reduce.
template <class Rule>
PULSORA_HD float reducedRow(VectorView<const float> row) {
  float part[kReduceLanes];
  for (int l = 0; l < kReduceLanes; ++l) part[l] = Rule::kStart;
  int64_t j = 0;
  for (; j + kReduceLanes <= row.size; j += kReduceLanes) {
    for (int l = 0; l < kReduceLanes; ++l) part[l] = Rule::add(part[l], row[j + l]);
  }
  for (int l = 0; j + l < row.size; ++l) part[l] = Rule::add(part[l], row[j + l]);
  for (int half = kReduceLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) part[l] = Rule::join(part[l], part[l + half]);
  }
  return part[0];
}

/// Noise management as numbers.
struct ScaleRule {
  NoiseManagement management = NoiseManagement::None;
  float constant = 1.0f;         ///< nm_thres
  float limit = kInfinity;       ///< nm_thres of abs_max
  float largestFactor = 1.0f;    ///< max_bm_res / inp_res
  float weightOverBound = 0.0f;  ///< nm_assumed_wmax / out_bound
};

/// The scale of abs_max_np_sum and iterative_worst_case: with it, the sums of positive and of
/// negative inputs stay within the ADC, as far as max_bm_res allows.
PULSORA_HD float worstCaseScale(const ScaleRule &rule, VectorView<const float> row, float absMax) {
  const float oneSided =
      max(reducedRow<reduce::PositiveSum>(row), reducedRow<reduce::NegativeSum>(row));
  const float needed = oneSided * rule.weightOverBound;
  return max(absMax, min(absMax * rule.largestFactor, needed));
}

/// The scale alpha of a sample's first read; for average_abs_max, the value that enters the running
/// mean. It is 0 only if all inputs are 0; such a sample reads as exactly 0.
PULSORA_HD float noiseScale(const ScaleRule &rule, VectorView<const float> row, float absMax) {
  switch (rule.management) {
    case NoiseManagement::AbsMax:
      return min(absMax, rule.limit);
    case NoiseManagement::AverageAbsMax:
      return absMax;
    case NoiseManagement::Max: {
      const float largest = reducedRow<reduce::Largest>(row);
      return largest > 0.0f || absMax == 0.0f ? max(largest, 0.0f) : 1.0f;
    }
    case NoiseManagement::AbsMaxNPSum:
      return worstCaseScale(rule, row, absMax);
    case NoiseManagement::Constant:
    case NoiseManagement::InputRange:
      return rule.constant;
    case NoiseManagement::None:
      break;
  }
  return 1.0f;
}

/// The running mean of average_abs_max after one more sample; a mean of 0 means that there was no
/// sample yet.
PULSORA_HD float runningMean(float mean, float absMax, float decay) {
  return select(mean > 0.0f, fma(decay, absMax - mean, mean), absMax);
}

// --- input

/// One input line's DAC.
struct InputConverter {
  Converter dac;
  float noise = 0.0f;
  float negativeGain = 1.0f;
};

/// DAC output for x / alpha. z is standard normal, u uniform.
PULSORA_HD float convertedInput(const InputConverter &c, float x, float alpha, float z, float u) {
  const float scaled = x / select(alpha > 0.0f, alpha, 1.0f);
  const float level = clamp(quantised(c.dac, scaled, u), -c.dac.bound, c.dac.bound);
  const float noisy = fma(c.noise, z, level);
  return select(noisy < 0.0f, noisy * c.negativeGain, noisy);
}

/// Part `part` of a DAC output when positive and negative inputs are read separately.
PULSORA_HD float signPart(float u, int part) { return part == 0 ? max(u, 0.0f) : min(u, 0.0f); }

/// How the levels of a DAC are cut into slices of `bits` bits, from the highest bit of the largest
/// level down. The lowest slice is filled up with `padding` zeros.
struct InputSlices {
  int bits;
  int padding;

  /// The share of the input range with which slice `slice` of a level drives a line, with the sign
  /// of the level; slice 0 is the lowest.
  PULSORA_HD float part(float level, int slice) const {
    const int32_t most = (1 << bits) - 1;
    const int32_t filled = static_cast<int32_t>(abs(level)) << padding;
    const float share =
        static_cast<float>(filled >> (slice * bits) & most) / static_cast<float>(most);
    return level < 0.0f ? -share : share;
  }
  /// The number of levels that the whole input range stands for in a slice.
  PULSORA_HD float worth(int slice) const {
    return static_cast<float>(((1 << bits) - 1) << (slice * bits)) /
           static_cast<float>(1 << padding);
  }
};

/// Weight of input j of n in the IR drop: how far from the read-out it lies.
PULSORA_HD float lateness(int64_t j, int64_t n) {
  const float rest = 1.0f - static_cast<float>(j) / static_cast<float>(n);
  return 1.0f - rest * rest;
}

// --- array

/// Effects between the cells and the output stage.
struct ArrayEffects {
  float wireScale = 0.0f;  ///< n / ir_drop_gw_div_gmax
  float irDrop = 0.0f;
  bool lineVoltage = false;  ///< whether offsets or series resistances exist
  float negativeWMin = 0.0f;
  float seriesResistance = 0.0f;
  float maxSeries = kInfinity;
  float weightNoise = 0.0f;
};

/// The sums of one output line in one pass.
struct LineSums {
  float sum = 0.0f;       ///< sum_j w_j u_j
  float absSum = 0.0f;    ///< sum_j |w_j| |u_j|
  float lateSum = 0.0f;   ///< sum_j w_j u_j lateness(j)
  float squares = 0.0f;   ///< of the weight noise: sum_j u_j^2, or sum_j |w_j| u_j^2
  float inputSum = 0.0f;  ///< sum_j u_j
};

/// The load a at which the IR drop passes from AIHWKit's polynomial to the uniform line: there, and
/// nowhere else above 0, both give the same c.
constexpr float kWireJunction = 1.5277587f;

/// Shares of current that a loaded wire takes away: cell j keeps 1 - everywhere - far lateness(j).
struct WireLoss {
  float everywhere = 0.0f;
  float far = 0.0f;
};

/// The loss at a load a = sum_j |w_j u_j| n / gw; gw is the conductance of the wire between two
/// cells. Each cell keeps a share within [0, 1] that falls with a, to rounding, so that products of
/// one sign never turn their sign nor exceed the ideal sum.
///
/// Up to the junction: far = c = a (0.05 a^2 - 0.2 a + 0.5), AIHWKit's fit.
///
/// Beyond: a uniform line of length 1, with cells of w n per length that see the voltage 1 (u = 1)
/// and a wire of gw / n, obeys v'' = s^2 (v - 1) with s^2 = w n / (gw / n) = n^2 w / gw. As
/// sum_j |w_j u_j| = n w, the load is a = s^2. With v(0) = 0 at the read-out and v'(1) = 0 at the
/// open end, the line delivers the share t = tanh(s) / s of the ideal current. The mean of lateness
/// is 2/3, so t = 1 - everywhere - 2/3 far. Far cells lose all they have first:
///   t >= 1/3 (a <= 8.9): everywhere = 0, far = 3/2 (1 - t), which is a/2 - a^2/5 + ... as above
///   t < 1/3: everywhere = 1 - 3 t, far = 3 t, so that a cell at the far end keeps nothing.
PULSORA_HD WireLoss wireDrop(float a) {
  const float fitted = a * (0.05f * (a * a) - 0.2f * a + 0.5f);
  const float s = sqrt(a);
  const float t = tanh(s) / s;  // 0 / 0 at a = 0, which is not selected
  const float uniform = min(1.5f * (1.0f - t), 3.0f * t);
  const bool beyond = a > kWireJunction;
  return {select(beyond, max(1.0f - 3.0f * t, 0.0f), 0.0f), select(beyond, uniform, fitted)};
}

/// A line's sum after the IR drop.
PULSORA_HD float behindWire(const ArrayEffects &e, const LineSums &in) {
  const WireLoss loss = wireDrop(in.absSum * e.wireScale);
  return (1.0f - e.irDrop * loss.everywhere) * in.sum - e.irDrop * loss.far * in.lateSum;
}

/// The current of a line after its series resistance.
PULSORA_HD float behindResistance(const ArrayEffects &e, float current) {
  return current / (1.0f + min(e.seriesResistance * abs(current), e.maxSeries));
}

/// The current of an output line minus the current of its reference line; the voltage offset lowers
/// the first by the share `offset` and raises the second by the same share.
PULSORA_HD float lineDifference(const ArrayEffects &e, float y, float inputSum, float offset) {
  const float reference = e.negativeWMin * inputSum;
  return (1.0f - offset) * behindResistance(e, y + reference) -
         (1.0f + offset) * behindResistance(e, reference);
}

/// The sum as it arrives at the output stage. z is standard normal.
PULSORA_HD float arrayOutput(const ArrayEffects &e, const LineSums &in, float offset, float z) {
  const float dropped = e.irDrop > 0.0f ? behindWire(e, in) : in.sum;
  const float y = select(e.lineVoltage, lineDifference(e, dropped, in.inputSum, offset), dropped);
  return fma(e.weightNoise * sqrt(in.squares), z, y);
}

// --- output

/// An output stage: amplifier and ADC.
struct OutputConverter {
  float gain = 1.0f;
  float negativeGain = 1.0f;
  Converter adc;
  float lowest = -kInfinity;  ///< readings below count as out of range
};

/// The amplifier: gain, compression by `bend`, asymmetry.
PULSORA_HD float amplified(const OutputConverter &c, float y, float bend) {
  const float v = c.gain * y / (1.0f + abs(bend * y));
  return select(v < 0.0f, v * c.negativeGain, v);
}

/// A converted number; `clipped` is 1 if it was out of range.
struct Reading {
  float value;
  uint32_t clipped;
};

/// ADC output for v, which has its noise. u is uniform.
PULSORA_HD Reading digitised(const OutputConverter &c, float v, float u) {
  const float level = quantised(c.adc, v, u);
  const uint32_t high = select<uint32_t>(level > c.adc.bound, 1U, 0U);
  const uint32_t low = select<uint32_t>(level < c.lowest, 1U, 0U);
  return {clamp(level, -c.adc.bound, c.adc.bound), high | low};
}

/// ADC output for y with noise of standard deviation `noise`. z is standard normal, u uniform.
PULSORA_HD Reading digitised(const OutputConverter &c, float y, float noise, float z, float u) {
  return digitised(c, fma(noise, z, y), u);
}

/// ADC output behind an amplifier of the line's own, whose gain is divided out of the result.
PULSORA_HD Reading digitised(const OutputConverter &c, float y, float noise, float z, float u,
                             float gain) {
  const Reading r = digitised(c, gain * fma(noise, z, y), u);
  return {r.value / gain, r.clipped};
}

/// How many passes make a reading, and where they are added.
enum class Passes { One, AnalogSum, DigitalSum };

/// Fixed properties of an output line.
struct LineSpread {
  float noise;        ///< standard deviation of the noise before the ADC
  float offset;       ///< voltage offset
  float bend;         ///< nonlinearity of the amplifier
  float gain = 1.0f;  ///< before the ADC; the result is divided by it
};

/// Random numbers of one pass and line.
struct OutputDraws {
  float weight = 0.0f;  ///< standard normal
  float noise = 0.0f;   ///< standard normal
  float round = 0.0f;   ///< uniform in [0, 1)
};

/// The input of the output stage from one pass of a line; without kEffects, the ideal sum.
template <bool kEffects>
PULSORA_HD float passOutput(const ArrayEffects &e, const LineSpread &line, const LineSums &in,
                            const OutputDraws &draws) {
  return kEffects ? arrayOutput(e, in, line.offset, draws.weight) : in.sum;
}

template <bool kEffects>
PULSORA_HD Reading converted(const OutputConverter &c, const LineSpread &line, float y,
                             const OutputDraws &draws) {
  if constexpr (kEffects) {
    return digitised(c, amplified(c, y, line.bend), line.noise, draws.noise, draws.round,
                     line.gain);
  } else {
    return digitised(c, y, line.noise, draws.noise, draws.round);
  }
}

/// The reading of a line from the sums of its passes. kEffects may be false if neither the array
/// nor the amplifier has effects, and lines have no gains of their own.
template <Passes kPasses, bool kEffects>
PULSORA_HD Reading readLine(const ArrayEffects &e, const OutputConverter &c, const LineSpread &line,
                            const LineSums (&in)[2], const OutputDraws (&draws)[2]) {
  const float first = passOutput<kEffects>(e, line, in[0], draws[0]);
  if constexpr (kPasses == Passes::One) {
    return converted<kEffects>(c, line, first, draws[0]);
  } else {
    const float second = passOutput<kEffects>(e, line, in[1], draws[1]);
    if constexpr (kPasses == Passes::AnalogSum) {
      return converted<kEffects>(c, line, first + second, draws[0]);
    } else {
      const Reading a = converted<kEffects>(c, line, first, draws[0]);
      const Reading b = converted<kEffects>(c, line, second, draws[1]);
      return {a.value + b.value, a.clipped | b.clipped};
    }
  }
}

/// Argument `index` of the draws for one pass of a sample's read number `round`.
PULSORA_HD uint32_t drawIndex(int32_t round, int pass) {
  return 2U * static_cast<uint32_t>(round) + static_cast<uint32_t>(pass);
}

}  // namespace pulsora
