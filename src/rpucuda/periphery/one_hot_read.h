#pragma once

#include "periphery/read_stages.h"

namespace pulsora {

/// The sums of a line of which one input is driven, by u, at a cell of weight w. The squares are
/// the variance of the cell's weight noise if it is `given`, else 1, or |w| if `ofMagnitude`; times
/// u^2.
PULSORA_HD LineSums sumsOfOne(float w, float u, float late, bool ofMagnitude, bool given,
                              float variance) {
  LineSums in;
  in.sum = w * u;
  in.absSum = pulsora::abs(in.sum);
  in.lateSum = in.sum * late;
  const float square = ofMagnitude ? pulsora::abs(w) * u * u : u * u;
  in.squares = given ? variance * u * u : square;
  in.inputSum = u;
  return in;
}

/// Readings of all outputs for a single input of 1, the other lines at rest: read j drives line j
/// in sample number firstSample + j, in one pass of scale 1, without bound management. Each
/// reading depends on one cell alone.
struct OneHotRead {
  InputStage input;    ///< without inputs
  OutputStage output;  ///< without sums
  MatrixView<const float> weights;
  bool noiseOfMagnitude;              ///< whether the weight noise grows with the weight
  MatrixView<const float> variances;  ///< of the cells' weight noise; without data: none

  /// Moves on by so many samples.
  PULSORA_HD void skip(uint64_t samples) {
    input.draws.firstSample += samples;
    output.draws.firstSample += samples;
  }
  /// The reading of an output while line j is driven.
  PULSORA_HD float operator()(int64_t line, int64_t j) const {
    const float variance = hasVariances() ? variances(line, j) : 0.0f;
    const LineSums sums = sumsOf(weights(line, j), driven(j), lateness(j, weights.cols), variance);
    const LineSpread spread = spreadOf(output, line);
    const OutputDraws draws = drawsOf(line, j);
    return output.hasEffects ? reading<true>(sums, spread, draws)
                             : reading<false>(sums, spread, draws);
  }
  PULSORA_HD bool hasVariances() const { return variances.data != nullptr; }
  /// The sums of a line whose cell of weight w is driven by u.
  PULSORA_HD LineSums sumsOf(float w, float u, float late, float variance) const {
    return sumsOfOne(w, u, late, noiseOfMagnitude, hasVariances(), variance);
  }
  /// The reading of a line from its sums; kEffects is output.hasEffects.
  template <bool kEffects>
  PULSORA_HD float reading(const LineSums &sums, const LineSpread &spread,
                           const OutputDraws &random) const {
    const LineSums in[2] = {sums, {}};
    const OutputDraws draws[2] = {random, {}};
    const Reading read =
        readLine<Passes::One, kEffects>(output.effects, output.converter, spread, in, draws);
    return read.value * output.outScale;
  }

  /// The converted input of 1 of line j.
  PULSORA_HD float driven(int64_t j) const {
    const StageDraws &d = input.draws;
    const auto line = static_cast<uint64_t>(j);
    const uint64_t sample = d.firstSample + line;
    const InputConverter &c = input.converter;
    const float z =
        c.noise > 0.0f ? normalOfSample(d.key, d.noise, line, sample, drawIndex(0, 0)) : 0.0f;
    const float u =
        c.dac.stochastic ? uniform(draw(d.key, d.round, line, sample, drawIndex(0, 0)).v[0]) : 0.0f;
    return convertedInput(c, 1.0f, 1.0f, z, u);
  }
  /// Whether readings draw the noise of weights.
  PULSORA_HD bool drawsWeights() const {
    return output.hasEffects && output.effects.weightNoise > 0.0f;
  }
  /// The uniform number of the ADC's stochastic rounding.
  PULSORA_HD float roundingOf(int64_t line, int64_t j) const {
    const StageDraws &d = output.draws;
    const uint64_t sample = d.firstSample + static_cast<uint64_t>(j);
    return uniform(draw(d.key, d.round, static_cast<uint64_t>(line), sample, drawIndex(0, 0)).v[0]);
  }

 private:
  PULSORA_HD OutputDraws drawsOf(int64_t line, int64_t j) const {
    const StageDraws &d = output.draws;
    const auto element = static_cast<uint64_t>(line);
    const uint64_t sample = d.firstSample + static_cast<uint64_t>(j);
    const uint32_t index = drawIndex(0, 0);
    OutputDraws draws;
    if (drawsWeights()) draws.weight = normalOfSample(d.key, d.weight, element, sample, index);
    if (output.noisy) draws.noise = normalOfSample(d.key, d.noise, element, sample, index);
    if (output.converter.adc.stochastic) draws.round = roundingOf(line, j);
    return draws;
  }
};

/// |reading|, for sums over the inputs of an output.
struct OneHotMagnitude {
  OneHotRead read;

  PULSORA_HD double operator()(int64_t line, int64_t j) const {
    return static_cast<double>(pulsora::abs(read(line, j)));
  }
};

}  // namespace pulsora
