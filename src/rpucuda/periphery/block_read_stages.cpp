#include "periphery/block_read.h"

// The two stages of a read, assembled from its parameters and its scratch memory.

namespace pulsora {
namespace {

StageDraws inputDraws(RandomKey key, Pass pass, uint64_t firstSample) {
  return pass == Pass::Forward
             ? StageDraws{key, Purpose::ForwardInputNoise, Purpose::ForwardWeightNoise,
                          Purpose::ForwardInputRound, firstSample}
             : StageDraws{key, Purpose::BackwardInputNoise, Purpose::BackwardWeightNoise,
                          Purpose::BackwardInputRound, firstSample};
}

StageDraws outputDraws(RandomKey key, Pass pass, uint64_t firstSample) {
  return pass == Pass::Forward
             ? StageDraws{key, Purpose::ForwardOutputNoise, Purpose::ForwardWeightNoise,
                          Purpose::ForwardOutputRound, firstSample}
             : StageDraws{key, Purpose::BackwardOutputNoise, Purpose::BackwardWeightNoise,
                          Purpose::BackwardOutputRound, firstSample};
}

float wireScale(const IOParameters &p, int64_t inputs) {
  return static_cast<float>(double(inputs) / double(p.ir_drop_gw_div_gmax));
}

}  // namespace

ScaleRule scaleRule(const IOParameters &p) {
  ScaleRule rule;
  rule.management = p.noise_management;
  rule.constant = p.nm_thres;
  rule.limit = p.nm_thres > 0.0f ? p.nm_thres : kInfinity;
  const double step = p.inputStep();
  rule.largestFactor =
      step > 0.0 ? static_cast<float>(double(p.max_bm_res) * 2.0 * double(p.inp_bound) / step)
                 : kInfinity;
  rule.weightOverBound = p.out_bound > 0.0f ? p.nm_assumed_wmax / p.out_bound : 0.0f;
  return rule;
}

// Makes levels of the DAC in place of inputs, without noise.
InputConverter BlockRead::levelConverter() const {
  const IOParameters &p = parameters_;
  InputConverter converter{Converter(p.inputStep(), p.inp_bound, p.inp_sto_round), 0.0f, 1.0f};
  converter.dac.step = 1.0f;
  converter.dac.bound = static_cast<float>(p.largestLevel());
  return converter;
}

// With firstRow > 0 a stage has one pass; its scratch memory follows the memory of earlier rows.
InputStage BlockRead::inputStage(MatrixView<const float> in, uint64_t firstSample, bool inIntegers,
                                 int64_t firstRow) {
  const IOParameters &p = parameters_;
  InputStage s{};
  s.in = in;
  s.list = {nullptr, in.rows};
  const bool worstCase =
      managesBounds() && p.bound_management == BoundManagement::IterativeWorstCase;
  s.state = {scratch_.scale.data() + firstRow,
             worstCase ? scratch_.worstScale.data() + firstRow : nullptr,
             scratch_.round.data() + firstRow, scratch_.clipped.data() + firstRow, nullptr};
  s.draws = inputDraws(key_, pass_, firstSample);
  s.pass = pass_;
  s.rule = scaleRule(p);
  s.converter = inIntegers ? levelConverter()
                           : InputConverter{Converter(p.inputStep(), p.inp_bound, p.inp_sto_round),
                                            p.inp_noise, 1.0f - p.inp_asymmetry};
  s.passes = sumCount(inIntegers);
  if (needsFloats(inIntegers)) s.converted = scratch_.converted.data() + firstRow * inSize_;
  if (inIntegers && !onCpu_) s.bytes = levelBytes(s.passes * in.rows);
  if (inIntegers && onCpu_) s.levels = scratch_.levels.data() + firstRow * inSize_;
  const bool lineVoltage = p.v_offset_std > 0.0f || p.r_series > 0.0f;
  s.sums = lineVoltage && p.v_offset_w_min < 0.0f ? scratch_.inputSums.data() + firstRow : nullptr;
  s.squares =
      p.w_noise > 0.0f && !hasCellNoise() ? scratch_.inputSquares.data() + firstRow : nullptr;
  return s;
}

OutputStage BlockRead::outputStage(MatrixView<float> out, uint64_t firstSample, bool inIntegers,
                                   int64_t firstRow) {
  const IOParameters &p = parameters_;
  const InputStage input =
      inputStage({nullptr, out.rows, inSize_, inSize_, 1}, firstSample, inIntegers, firstRow);
  const bool wire = p.ir_drop > 0.0f;
  OutputStage s{};
  s.sums = scratch_.sums.data() + firstRow * outSize_;
  s.absSums = wire ? scratch_.absSums.data() : nullptr;
  s.lateSums = wire ? scratch_.lateSums.data() : nullptr;
  s.squareSums = hasCellNoise() ? scratch_.squareSums.data() : nullptr;
  s.inputSums = input.sums;
  s.inputSquares = input.squares;
  s.inputUnit = inIntegers ? levelStep() : 1.0f;
  s.out = out;
  s.list = input.list;
  s.state = input.state;
  s.draws = outputDraws(key_, pass_, firstSample);
  s.lineNoise = lines_.data();
  s.lineOffset = lines_.data() + outSize_;
  s.lineBend = lines_.data() + 2 * outSize_;
  s.lineGain = gains_;
  s.effects = {wireScale(p, inSize_),
               p.ir_drop,
               p.v_offset_std > 0.0f || p.r_series > 0.0f,
               -p.v_offset_w_min,
               p.r_series,
               p.r_series_max_total > 0.0f ? p.r_series_max_total : kInfinity,
               weightNoise()};
  s.converter.gain = gain_;
  s.converter.negativeGain = 1.0f - p.out_asymmetry;
  s.converter.adc = Converter(p.outputStep(), p.out_bound, p.out_sto_round);
  s.converter.lowest = p.bm_test_negative_bound ? -s.converter.adc.bound : -kInfinity;
  s.passes = !p.splitsSigns()                      ? Passes::One
             : p.mv_type == MvType::PosNegSeparate ? Passes::AnalogSum
                                                   : Passes::DigitalSum;
  s.hasEffects = wire || s.effects.lineVoltage || s.effects.weightNoise > 0.0f || hasAmplifier();
  s.noisy = p.out_noise > 0.0f;
  s.outScale = p.out_scale;
  return s;
}

// The amplifier and the ADC of a stage alone, without the effects of the array.
OutputStage BlockRead::converterStage(OutputStage stage) const {
  stage.absSums = stage.lateSums = stage.squareSums = nullptr;
  stage.inputSums = stage.inputSquares = nullptr;
  stage.effects = {};
  stage.hasEffects = hasAmplifier();
  return stage;
}

// Whether more than noise comes between the sums and the levels of the ADC.
bool BlockRead::hasAmplifier() const {
  const IOParameters &p = parameters_;
  return p.out_nonlinearity > 0.0f || p.out_asymmetry != 0.0f || gain_ != 1.0f || gains_;
}

OneHotRead BlockRead::oneHot(MatrixView<const float> weights, uint64_t firstSample) {
  if (!slices_.empty()) {  // one slice drives a line with the whole range
    OneHotRead read = slices_.front().oneHot(weights, firstSample);
    if (parameters_.addsSlices()) {
      const OutputStage own = outputStage(read.output.out, firstSample, false);
      read.output.converter = own.converter;
      read.output.draws = own.draws;
      read.output.noisy = own.noisy;
      read.output.lineNoise = own.lineNoise;
      read.output.lineBend = own.lineBend;
      read.output.lineGain = own.lineGain;
      read.output.hasEffects |= converterStage(own).hasEffects;
    }
    read.output.outScale = parameters_.out_scale;
    return read;
  }
  OneHotRead read{};
  read.input = inputStage({nullptr, inSize_, inSize_, 0, 0}, firstSample, false);
  read.output = outputStage({nullptr, inSize_, outSize_, outSize_, 1}, firstSample, false);
  read.weights = weights;
  read.noiseOfMagnitude = hasPcmNoise();
  if (variance_) read.variances = cellVariances();
  return read;
}

}  // namespace pulsora
