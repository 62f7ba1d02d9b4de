#pragma once

#include "core/atomics.h"
#include "periphery/integer_sums.h"
#include "periphery/line_formulas.h"

// The two stages of a read, before and after the matrix product, as plain data, and the functors
// that apply them element by element. A stage works on a list of rows (samples) of the mini-batch:
// entry k lies in row k of the converted inputs and of the sums, its second pass in row count + k.

namespace pulsora {

/// Directions of a read: y = W x, or dx = W^T d.
enum class Pass { Forward, Backward };

/// State of a read, per row of the mini-batch.
struct RowState {
  float *scale;       ///< alpha; 0 makes the result 0
  float *worstScale;  ///< alpha of the worst case; null if not needed
  int32_t *round;     ///< number of reads of this row so far
  int32_t *clipped;   ///< whether the last read left the range of the ADC
  uint64_t *repeats;  ///< repeated reads of all rows so far; null: not counted
};

/// The source of a stage's random numbers.
struct StageDraws {
  RandomKey key;
  Purpose noise;
  Purpose weight;
  Purpose round;
  uint64_t firstSample;
};

struct RowList {
  const int32_t *rows;  ///< null: all rows in order
  int64_t count;

  PULSORA_HD int64_t operator[](int64_t k) const { return rows ? rows[k] : k; }
};

struct InputStage {
  MatrixView<const float> in;  // [m, n]
  RowList list;
  RowState state;
  StageDraws draws;
  Pass pass;
  ScaleRule rule;
  InputConverter converter;
  int passes;
  float *converted;         // [passes * count, n]; null: not needed
  int16_t *levels;          // the same as integers; null: not needed
  LevelBytes bytes;         // the same on a GPU; without data: not needed
  float *sums;              // sum of each converted row; null: not needed
  float *squares;           // sum of squares of each converted row; null: not needed
  uint32_t *nonfiniteFlag;  // on a GPU, see Context; may be null
};

struct OutputStage {
  const float *sums;          // [passes * count, n]
  const float *absSums;       // [passes * count, n]; null: zero
  const float *lateSums;      // [passes * count, n]; null: zero
  const float *squareSums;    // [passes * count, n]; null: take inputSquares
  const float *inputSums;     // [passes * count]; null: zero
  const float *inputSquares;  // [passes * count]; null: zero
  float inputUnit;            // of inputSums, and its square of inputSquares
  MatrixView<float> out;      // [m, n]
  RowList list;
  RowState state;
  StageDraws draws;
  const float *lineNoise;   // [n]
  const float *lineOffset;  // [n]
  const float *lineBend;    // [n]
  const float *lineGain;    // [n]; null: 1
  ArrayEffects effects;
  OutputConverter converter;
  Passes passes;
  bool hasEffects;  // whether array or amplifier have any effect, or lines gains
  bool noisy;       // whether lineNoise is not all zero
  float outScale;
};

/// The fixed properties of an output line.
PULSORA_HD LineSpread spreadOf(const OutputStage &s, int64_t line) {
  return {s.lineNoise[line], s.lineOffset[line], s.lineBend[line],
          s.lineGain ? s.lineGain[line] : 1.0f};
}

/// Whether a read draws the noise of its outputs alone, and nothing else acts on its lines.
inline bool hasOutputNoiseAlone(const InputStage &input, const OutputStage &output) {
  const InputConverter &in = input.converter;
  return !output.hasEffects && !output.converter.adc.stochastic && !(in.noise > 0.0f) &&
         !in.dac.stochastic;
}

/// A read of one pass whose only matrix product is the ideal sums.
struct PlainRead {
  InputStage input;
  OutputStage output;
  MatrixView<const float> weights;  // [out, in]
  float *sums;                      // the sums of `output`, or their parts one after another
  int64_t *partial;                 // exact parts, if the product is in integers
  int64_t parts;                    // of each sum
  int32_t *list;                    // holds up to all rows
  int32_t *count;
  int repeats;              // at most
  IntegerWeights integers;  // if the product is in integers
  float unit;               // of sums of integers
  DigitMemory digits;

  PULSORA_HD IntegerSums integerSums() const { return {sums, partial, parts, unit, false, digits}; }
};

/// The contribution of a chain's second array to a read: `factor` times the read of that array,
/// whose few inputs have been converted already.
struct AddedRead {
  PlainRead read;
  float factor;

  PULSORA_HD bool isThere() const { return read.weights.data != nullptr; }
  /// The ideal sum of a line.
  PULSORA_HD float sum(int64_t row, int64_t line) const {
    const int64_t n = read.weights.cols;
    const float *in = read.input.converted + row * n;
    const VectorView<const float> w = read.weights.row(line);
    if (read.integers.exist()) {
      int64_t exact = 0;
      for (int64_t k = 0; k < n; ++k)
        exact += static_cast<int64_t>(in[k]) * integerOf(read.integers, w[k]);
      return valueOf(exact, read.unit);
    }
    float total = 0.0f;
    for (int64_t k = 0; k < n; ++k) total = fma(w[k], in[k], total);
    return total;
  }
};

/// Sets row i's state for its first read.
PULSORA_HD void beginRow(const RowState &state, int64_t i, float scale) {
  state.scale[i] = scale;
  state.round[i] = 0;
  state.clipped[i] = 0;
}

/// Sets row i's state for its first read, and returns the scale.
PULSORA_HD float prepareRow(const InputStage &s, int64_t i, VectorView<const float> row,
                            float absMax) {
  const float scale = noiseScale(s.rule, row, absMax);
  if (s.state.worstScale) s.state.worstScale[i] = worstCaseScale(s.rule, row, absMax);
  beginRow(s.state, i, scale);
  return scale;
}

/// Makes the results of row i NaN, and returns the scale that does so.
PULSORA_HD float spoilRow(const RowState &state, int64_t i) {
  beginRow(state, i, kNaN);
  if (state.worstScale) state.worstScale[i] = kNaN;
  return kNaN;
}

PULSORA_HD void measureRow(const InputStage &s, int64_t i, VectorView<const float> row) {
  prepareRow(s, i, row, reducedRow<reduce::AbsLargest>(row));
}

struct MeasureRow {
  InputStage s;

  PULSORA_HD void operator()(int64_t i) const { measureRow(s, i, s.in.row(i)); }
};

/// Replaces each row's largest magnitude by its first scale; average_abs_max: the running mean.
struct FirstScale {
  MatrixView<const float> in;
  ScaleRule rule;
  const float *mean;
  float *scale;

  PULSORA_HD void operator()(int64_t i) const {
    const bool averages = rule.management == NoiseManagement::AverageAbsMax && *mean > 0.0f;
    scale[i] = averages ? *mean : noiseScale(rule, in.row(i), scale[i]);
  }
};

/// The scales of a whole mini-batch under average_abs_max; one sequential call, because each
/// sample's mean follows from the one before. A row whose scale is NaN counts as zeros.
struct AverageScales {
  float *scale;  // in: absolute maxima; out: scales
  int64_t rows;
  float decay;
  float *mean;
  const uint32_t *nonfiniteFlag;  // see Context; may be null
  bool isKept;                    // whether later reads start from this mean

  PULSORA_HD void operator()(int64_t) const {
    if (nonfiniteFlag && *nonfiniteFlag) return;
    float running = *mean;
    for (int64_t i = 0; i < rows; ++i) {
      const bool isSpoilt = scale[i] != scale[i];
      running = runningMean(running, isSpoilt ? 0.0f : scale[i], decay);
      scale[i] = isSpoilt ? kNaN : running;
    }
    if (isKept) *mean = running;
  }
};

/// Converts element i of the list's rows with the DAC.
struct ConvertInput {
  InputStage s;

  PULSORA_HD void operator()(int64_t i) const { convert(i / s.in.cols, i % s.in.cols); }

  /// Converts input j of entry k of the list.
  PULSORA_HD void convert(int64_t k, int64_t j) const {
    const int64_t n = s.in.cols;
    const int64_t i = k * n + j;
    const int64_t row = s.list[k];
    const float v = converted(row, j, s.state.scale[row], s.state.round[row]);
    if (s.passes == 1) {
      s.converted[i] = v;
      if (s.bytes.data) s.bytes.put(k, j, v);
    } else {
      for (int p = 0; p < 2; ++p) {
        s.converted[p * s.list.count * n + i] = signPart(v, p);
        if (s.bytes.data) s.bytes.put(p * s.list.count + k, j, signPart(v, p));
      }
    }
    if (s.bytes.data && j + 1 == n) {
      for (int p = 0; p < s.passes; ++p) s.bytes.end(p * s.list.count + k, n);
    }
  }

  /// The DAC output for input j of a row, given the scale and the number of earlier reads.
  PULSORA_HD float converted(int64_t row, int64_t j, float scale, int32_t round) const {
    const uint64_t line = static_cast<uint64_t>(j);
    const uint64_t sample = s.draws.firstSample + static_cast<uint64_t>(row);
    const uint32_t index = drawIndex(round, 0);
    const InputConverter &c = s.converter;
    const float z =
        c.noise > 0.0f ? normalOfSample(s.draws.key, s.draws.noise, line, sample, index) : 0.0f;
    const float u = c.dac.stochastic
                        ? uniform(draw(s.draws.key, s.draws.round, line, sample, index).v[0])
                        : 0.0f;
    return convertedInput(c, s.in(row, j), scale, z, u);
  }
};

/// Sums over row r of the converted inputs.
PULSORA_HD void sumConverted(const InputStage &s, int64_t r) {
  const int64_t n = s.in.cols;
  const VectorView<const float> row(s.converted + r * n, n);
  if (s.sums) s.sums[r] = reducedRow<reduce::Sum>(row);
  if (s.squares) s.squares[r] = reducedRow<reduce::Squares>(row);
}

struct SumConverted {
  InputStage s;

  PULSORA_HD void operator()(int64_t r) const { sumConverted(s, r); }
};

/// The sum of the inputs of row r of a pass, and of their squares.
PULSORA_HD float inputSumOf(const OutputStage &s, int64_t r) {
  return s.inputSums ? s.inputSums[r] * s.inputUnit : 0.0f;
}
PULSORA_HD float squaresOf(const OutputStage &s, int64_t r) {
  return s.inputSquares ? s.inputSquares[r] * (s.inputUnit * s.inputUnit) : 0.0f;
}

/// Applies the asymmetry of inputs to sums over the negative ones, which follow `count` sums over
/// the positive ones: multiplies by `factor`, or `joins` the two.
struct NegativeInputs {
  float *sums;
  int64_t count;
  float factor;
  bool joins;

  PULSORA_HD void operator()(int64_t i) const {
    if (joins) {
      sums[i] = fma(factor, sums[count + i], sums[i]);
    } else {
      sums[count + i] *= factor;
    }
  }
};

/// Makes the result of element i of the list's rows from its sums.
struct FinishOutput {
  OutputStage s;

  PULSORA_HD void operator()(int64_t i) const { finish(i / s.out.cols, i % s.out.cols); }

  /// Makes output `line` of entry k of the list.
  PULSORA_HD void finish(int64_t k, int64_t line) const {
    switch (s.passes) {
      case Passes::AnalogSum:
        return finishAs<Passes::AnalogSum, true>(k, line);
      case Passes::DigitalSum:
        return finishAs<Passes::DigitalSum, true>(k, line);
      default:
        return s.hasEffects ? finishAs<Passes::One, true>(k, line)
                            : finishAs<Passes::One, false>(k, line);
    }
  }

  /// The reading of one line of a PlainRead, before it is scaled back.
  PULSORA_HD Reading readPlain(int64_t line, float sum, const OutputDraws &draws) const {
    const LineSpread spread = spreadOf(s, line);
    LineSums in[2];
    in[0].sum = sum;
    const OutputDraws both[2] = {draws, {}};
    return s.hasEffects ? readLine<Passes::One, true>(s.effects, s.converter, spread, in, both)
                        : readLine<Passes::One, false>(s.effects, s.converter, spread, in, both);
  }
  /// The draws that readPlain() takes.
  PULSORA_HD OutputDraws plainDraws(int64_t row, int64_t line, int32_t round) const {
    return s.hasEffects ? drawsOf<true>(row, line, 0, round) : drawsOf<false>(row, line, 0, round);
  }

 private:
  template <Passes kPasses, bool kEffects>
  PULSORA_HD void finishAs(int64_t k, int64_t line) const {
    constexpr int kPassCount = kPasses == Passes::One ? 1 : 2;
    const int64_t row = s.list[k];
    LineSums in[2];
    OutputDraws draws[2];
    for (int p = 0; p < kPassCount; ++p) {
      in[p] = sumsOf<kEffects>(p * s.list.count + k, line);
      draws[p] = drawsOf<kEffects>(row, line, p, s.state.round[row]);
    }
    const LineSpread spread = spreadOf(s, line);
    const Reading r = readLine<kPasses, kEffects>(s.effects, s.converter, spread, in, draws);
    s.out(row, line) = r.value * (s.state.scale[row] * s.outScale);
    if (r.clipped != 0) s.state.clipped[row] = 1;
  }

  template <bool kEffects>
  PULSORA_HD LineSums sumsOf(int64_t r, int64_t line) const {
    const int64_t at = r * s.out.cols + line;
    LineSums in;
    in.sum = s.sums[at];
    if constexpr (kEffects) {
      in.absSum = s.absSums ? s.absSums[at] : 0.0f;
      in.lateSum = s.lateSums ? s.lateSums[at] : 0.0f;
      in.squares = s.squareSums ? s.squareSums[at] : squaresOf(s, r);
      in.inputSum = inputSumOf(s, r);
    }
    return in;
  }

  template <bool kEffects>
  PULSORA_HD OutputDraws drawsOf(int64_t row, int64_t line, int pass, int32_t round) const {
    const StageDraws &d = s.draws;
    const uint64_t element = static_cast<uint64_t>(line);
    const uint64_t sample = d.firstSample + static_cast<uint64_t>(row);
    const uint32_t index = drawIndex(round, pass);
    OutputDraws draws;
    if (kEffects && s.effects.weightNoise > 0.0f) {
      draws.weight = normalOfSample(d.key, d.weight, element, sample, index);
    }
    if (s.noisy) draws.noise = normalOfSample(d.key, d.noise, element, sample, index);
    if (s.converter.adc.stochastic) {
      draws.round = uniform(draw(d.key, d.round, element, sample, index).v[0]);
    }
    return draws;
  }
};

/// Counts a repeat; to be called once for each row that is read again.
PULSORA_HD void countRepeat(const RowState &state) {
  if (state.repeats) atomicAddTo(state.repeats, uint64_t{1});
}

/// The scale with which row i is read again after it left the range of the ADC.
PULSORA_HD float nextScale(const RowState &state, int64_t i, float scale) {
  return state.worstScale ? max(scale, state.worstScale[i]) : 2.0f * scale;
}

/// Prepares the next read of row i, if it is to be read again.
struct NextRead {
  RowState state;

  PULSORA_HD void operator()(int64_t i) const {
    if (state.clipped[i] == 0) return;
    countRepeat(state);
    state.scale[i] = nextScale(state, i, state.scale[i]);
    ++state.round[i];
    state.clipped[i] = 0;
  }
};

}  // namespace pulsora
