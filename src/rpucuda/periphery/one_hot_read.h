#pragma once

#include "periphery/read_stages.h"

namespace pulsora {

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
    const float u = driven(j);
    const float w = weights(line, j);
    LineSums in[2];
    in[0].sum = w * u;
    in[0].absSum = pulsora::abs(in[0].sum);
    in[0].lateSum = in[0].sum * lateness(j, weights.cols);
    in[0].squares = noiseOfMagnitude ? pulsora::abs(w) * u * u : u * u;
    if (variances.data) in[0].squares = variances(line, j) * u * u;
    in[0].inputSum = u;
    const OutputDraws draws[2] = {drawsOf(line, j), {}};
    const LineSpread spread{output.lineNoise[line], output.lineOffset[line], output.lineBend[line]};
    const Reading reading =
        output.hasEffects
            ? readLine<Passes::One, true>(output.effects, output.converter, spread, in, draws)
            : readLine<Passes::One, false>(output.effects, output.converter, spread, in, draws);
    return reading.value * output.outScale;
  }

 private:
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
  PULSORA_HD OutputDraws drawsOf(int64_t line, int64_t j) const {
    const StageDraws &d = output.draws;
    const auto element = static_cast<uint64_t>(line);
    const uint64_t sample = d.firstSample + static_cast<uint64_t>(j);
    const uint32_t index = drawIndex(0, 0);
    OutputDraws draws;
    if (output.hasEffects && output.effects.weightNoise > 0.0f)
      draws.weight = normalOfSample(d.key, d.weight, element, sample, index);
    if (output.noisy) draws.noise = normalOfSample(d.key, d.noise, element, sample, index);
    if (output.converter.adc.stochastic)
      draws.round = uniform(draw(d.key, d.round, element, sample, index).v[0]);
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
