#include "inference/inference_device.h"

#include <algorithm>
#include <cmath>

#include "array/cell_functors.h"
#include "array/events.h"
#include "core/backend.h"
#include "inference/functors.h"
#include "inference/modify_weights.h"
#include "inference/weight_span.h"
#include "linalg/math_util.h"
#include "numerics/abs_max.h"

namespace pulsora {
namespace {

// Names of values in states.
constexpr const char *kStatus = "programming/status";
constexpr const char *kNumber = "programming/number";
constexpr const char *kTime = "programming/time";
constexpr const char *kRedraw = "programming/redraw";
constexpr const char *kChip = "programming/chip";
constexpr const char *kForwardSamples = "programming/forward_samples";
constexpr const char *kBackwardSamples = "programming/backward_samples";
constexpr const char *kTrainingRead = "training_read";
constexpr const char *kNewStep = "new_step";  // with modifier_every = 'step' alone

/// Prefix of the reads of slice k in a direction.
std::string nameOfReads(int k, const char *direction) {
  return k == 0 ? direction : message("slice_", k, "/", direction);
}

}  // namespace

std::unique_ptr<AnalogDevice> InferenceParams::make(const CompoundSite &site) const {
  return std::make_unique<InferenceDevice>(*this, site);
}

InferenceDevice::InferenceDevice(const InferenceParams &params, const CompoundSite &site)
    : params_(params),
      cell_(cellEncoding(params.cell, params.significance, params.cell_bits)),
      parts_(params.parts()),
      keys_(site.keys),
      dSize_(site.dSize),
      xSize_(site.xSize),
      weights_(Buffer<float>::zeros(site.context, dSize_ * xSize_)),
      wanted_(Buffer<float>::zeros(site.context, dSize_ * xSize_)),
      column_(site.context, params.cell_reference == CellReference::Column ? xSize_ : 0),
      scale_(Buffer<float>::zeros(site.context, dSize_)),
      centre_(site.context, spansData() ? dSize_ : 0),
      half_(site.context, spansData() ? dSize_ : 0),
      largest_(site.context, params.modifies() ? dSize_ : 0),
      outFactor_(Buffer<float>::zeros(site.context, dSize_)),
      factor_(Buffer<float>::zeros(site.context, dSize_)),
      rowMax_(site.context, dSize_),
      range_(site.context, 1),
      sums_(Buffer<double>::zeros(site.context, dSize_)),
      reference_(Buffer<double>::zeros(site.context, dSize_)),
      weighted_(Buffer<double>::zeros(site.context, 3)),
      pass_(site.context, site.periphery.forward, site.periphery.backward, dSize_, xSize_,
            keys_.ofRead(0, Role::Read)),
      readout_(site.context, site.periphery.forward, Pass::Forward, xSize_, dSize_,
               {keys_.of(0, Role::Readout), keys_.ofRead(0, Role::Read).spreads}) {
  makeSlices(site);
  const bool readsLines = params.compensation != Compensation::None &&
                          params.compensation_read == CompensationRead::Converters;
  PULSORA_CHECK(ConfigError, !readsLines || !site.periphery.forward.solvesWires(),
                "compensation_read is 'converters', and forward.wires is 'solved', with which a "
                "one-hot read depends on all cells; set compensation_read = 'exact'");
  if (params.read_window == 0.0f) return;
  const IOParameters &forward = site.periphery.forward;
  PULSORA_CHECK(ConfigError, !forward.is_perfect, "read_window is ", params.read_window,
                " s, but forward.is_perfect reads without noise; set read_window = 0");
  PULSORA_CHECK(ConfigError, forward.w_noise == 0.0f, "read_window is ", params.read_window,
                " s and forward.w_noise ", forward.w_noise,
                ": both draw the read noise of the weights; set one of them to 0");
}

void InferenceDevice::forward(const Context &context, MatrixView<const float> x,
                              MatrixView<float> y, const Counters &c) {
  PULSORA_CHECK(StateError, !pass_.forward().parameters().lacksRange(),
                "forward.noise_management is 'input_range', and no range was set; call "
                "pulsora.inference.calibrate(model, batches), or set forward.nm_thres");
  if (!points_.empty()) {
    forwardMany(context, x, y, c.forwardSamples);
    return;
  }
  const bool training = !isEvaluation(c.forwardSamples);
  if (training && params_.modifies() &&
      (isNewStep_ || params_.modifier_every == ModifierEvery::Forward)) {
    trainingRead_ = c.batch;
    isNewStep_ = false;
  }
  const Seen array = seen(context, training);
  if (array.slices) {
    readSlices(context, Pass::Forward, array.slices, x, y, c.forwardSamples);
  } else {
    pass_.forward().run(context, rowMajor(array.weights, dSize_, xSize_), x, y, c.forwardSamples);
  }
  scaleColumns(context, y, outFactor_.data(), y);
}

void InferenceDevice::backward(const Context &context, MatrixView<const float> d,
                               MatrixView<float> dx, const Counters &c) {
  PULSORA_CHECK(StateError, points_.empty(), "the array is read at ", points_.size(),
                " points together, which has no backward read; call drift() first");
  const Seen array = seen(context, !isEvaluation(c.backwardSamples));
  scaled_.reserve(context, d.size());
  const MatrixView<float> scaled = rowMajor(scaled_.data(), d.rows, d.cols);
  scaleColumns(context, d, outFactor_.data(), scaled);
  if (array.slices && !pass_.backward().parameters().is_perfect) {
    readSlices(context, Pass::Backward, array.slices, scaled, dx, c.backwardSamples);
    return;
  }
  pass_.backward().run(context, rowMajor(array.weights, dSize_, xSize_).transposed(), scaled, dx,
                       c.backwardSamples);
}

void InferenceDevice::update(const Context &context, MatrixView<const float> x,
                             MatrixView<const float> d, float lr, const Counters &) {
  if (x.rows == 0) return;
  reserveUpdate(context, d.rows, lr);
  changed();
  forEach(context, d.size(), ScaledCopier{d, -lr, scaled_.data()});
  accumulate(context, rowMajor<const float>(scaled_.data(), d.rows, d.cols).transposed(), x,
             rowMajor(weights_.data(), dSize_, xSize_));
}

void InferenceDevice::reserveUpdate(const Context &context, int64_t samples, float) {
  scaled_.reserve(context, samples * dSize_);
}

void InferenceDevice::getWeights(const Context &context, MatrixView<float> out) const {
  if (status_ != Status::Programmed) {
    copy(context, matrix(weights_), out);
    return;
  }
  forRows(context, out.rows, out.cols, FactorOfRows{realised_.data(), outFactor_.data(), out});
}

void InferenceDevice::setWeights(const Context &context, MatrixView<const float> weights,
                                 const Counters &) {
  changed();
  copy(context, weights, rowMajor(weights_.data(), dSize_, xSize_));
}

void InferenceDevice::take(const Context &context, MatrixView<const float> weights, bool isSame) {
  const bool isNewStep = isNewStep_ || !isSame;
  setWeights(context, weights, {});
  isNewStep_ = isNewStep;
}

// --- what reads see

void InferenceDevice::changed() {
  dirty_ = true;
  isNewStep_ = true;
  points_.clear();
  if (isProgrammed()) status_ = Status::Stale;
}

InferenceDevice::Seen InferenceDevice::seen(const Context &context, bool training) {
  requireCurrent();
  const float *slices = isApart() ? slices_.data() : nullptr;
  if (isProgrammed()) return {realised_.data(), slices};
  if (dirty_) normalise(context);
  if (training && params_.modifies()) {
    if (!isModified_ || modifiedRead_ != trainingRead_) modify(context);
    return {realised_.data(), params_.modifier == Modifier::NoiseModel ? slices : nullptr};
  }
  if (isModified_) restoreScales(context);
  makeWanted(context);
  return {wanted_.data(), nullptr};
}

void InferenceDevice::takeQuantiles(const Context &context) {
  const bool perOutput = params_.scaling_per == ScalingPer::Output;
  const int64_t of = perOutput ? xSize_ : dSize_ * xSize_;
  const int64_t wanted = std::llround(
      std::ceil(static_cast<double>(params_.scaling_quantile) * static_cast<double>(of) - 1e-6));
  const int64_t rank = std::clamp<int64_t>(wanted, 1, of);
  if (perOutput) {
    forEach(context, dSize_, RowQuantile{matrix(weights_), rank, scale_.data()});
    return;
  }
  std::vector<float> magnitudes(static_cast<size_t>(of));
  detail::copyToHost(context, magnitudes.data(), weights_.data(), weights_.bytes());
  for (float &w : magnitudes) w = pulsora::abs(w);
  const auto at = magnitudes.begin() + (rank - 1);
  std::nth_element(magnitudes.begin(), at, magnitudes.end());
  forEach(context, dSize_, Filler{*at, scale_.data()});
}

void InferenceDevice::normalise(const Context &context) {
  if (params_.scaling_quantile == 1.0f || params_.modifies())
    rowAbsMax(context, matrix(weights_), rowMax_.data());
  if (params_.scaling_quantile < 1.0f) {
    takeQuantiles(context);
  } else {
    takeMaxima(context, params_.scaling_per, scale_.data());
  }
  hasWanted_ = false;
  if (spansData()) takeSpans(context);
  restoreScales(context);
  dirty_ = false;
}

// Makes the weights in units of the scales, which not every training read takes.
void InferenceDevice::makeWanted(const Context &context) {
  if (hasWanted_) return;
  forRows(context, dSize_, xSize_,
          RowNormaliser{weights_.data(), scale_.data(), xSize_, wanted_.data(), cells()},
          RowNormaliser::kElements);
  hasWanted_ = true;
}

// Takes the largest magnitude of each row, or for each that of the tile.
void InferenceDevice::takeMaxima(const Context &context, ScalingPer per, float *to) {
  const auto maxima = rowMajor<const float>(rowMax_.data(), 1, dSize_);
  if (per == ScalingPer::Tile) {
    rowAbsMax(context, maxima, range_.data());
    forEach(context, dSize_, Spreader{range_.data(), to});
  } else {
    copy(context, maxima, rowMajor(to, 1, dSize_));
  }
}

void InferenceDevice::takeSpans(const Context &context) {
  makeWanted(context);
  forEach(context, dSize_, RowSpan{matrix(wanted_), centre_.data(), half_.data()});
  const int64_t rows = params_.scaling_per == ScalingPer::Tile ? dSize_ : 1;
  forEach(context, dSize_ / rows, SpanMiddle{rows, centre_.data(), half_.data()});
}

void InferenceDevice::restoreScales(const Context &context) {
  copy(context, rowMajor<const float>(scale_.data(), 1, dSize_),
       rowMajor(outFactor_.data(), 1, dSize_));
  setVariances(nullptr);
  isModified_ = false;
}

// --- training reads

double InferenceDevice::modifierTime(uint64_t number) const {
  const Philox4 words =
      draw(keys_.of(0, Role::Cells), Purpose::WeightModifier, 0, number, kTimeIndex);
  const double u = static_cast<double>(uniform(words.v[0]));
  const double low = std::log(static_cast<double>(params_.modifier_times.values[0]));
  const double high = std::log(static_cast<double>(params_.modifier_times.values[1]));
  return std::exp(low + u * (high - low));
}

void InferenceDevice::reserveArray(const Context &context) {
  realised_.reserve(context, cells());
  if (isApart()) slices_.reserve(context, numbersOfRead());
  if (isWindowed()) variance_.reserve(context, numbersOfRead());
}

void InferenceDevice::modify(const Context &context) {
  reserveArray(context);
  const uint64_t number = trainingRead_;
  if (params_.modifier == Modifier::NoiseModel) {
    makeWanted(context);
    realiseFirst(context, {modifierProgramming(number), modifierTime(number), 0, 0});
    setVariances(cellVariance());
  } else {
    restoreScales(context);
  }
  if (params_.modifier != Modifier::NoiseModel || params_.drop_connect > 0.0f) {
    if (params_.modifier_range > 0.0f) {
      forEach(context, dSize_, Filler{params_.modifier_range, largest_.data()});
    } else {
      takeMaxima(context, params_.modifier_per, largest_.data());
    }
    WeightModifier modifier{};
    modifier.rule = {params_.modifier,           params_.modifier_std,  params_.modifier_res,
                     params_.modifier_sto_round, params_.modifier_clip, params_.modifier_coeff,
                     params_.modifier_g_max,     params_.drop_connect};
    modifier.key = keys_.of(0, Role::Cells);
    modifier.number = number;
    modifier.weights = weights_.data();
    modifier.scale = scale_.data();
    modifier.largest = largest_.data();
    modifier.cells = cells();
    modifier.cols = xSize_;
    const auto apply = [&](float *to) {
      modifier.made = params_.modifier == Modifier::NoiseModel ? to : nullptr;
      modifier.to = to;
      modifyWeights(context, modifier);
    };
    apply(realised_.data());
    for (int k = 0; isApart() && modifier.made && k < parts_.count; ++k)
      apply(slices_.data() + k * cells());
  }
  isModified_ = true;
  modifiedRead_ = number;
}

// --- states

void InferenceDevice::saveTo(const Context &context, State &state,
                             const std::string &prefix) const {
  state.put(context, prefix + "weights", Tensor::Type::F32, {dSize_, xSize_}, weights_);
  for (int k = 0; k < arraysOfRead(); ++k) {
    passOf(k).forward().saveTo(context, state, prefix + nameOfReads(k, "forward/"));
    passOf(k).backward().saveTo(context, state, prefix + nameOfReads(k, "backward/"));
  }
  state.values[prefix + kStatus] = Value(static_cast<int64_t>(status_));
  state.values[prefix + kNumber] = Value(point_.number);
  state.values[prefix + kTime] = Value(point_.time);
  state.values[prefix + kRedraw] = Value(point_.redraw);
  state.values[prefix + kChip] = Value(point_.chip);
  if (isMeasured())
    state.putFixed(context, prefix + kMeasured, Tensor::Type::F32,
                   {dSize_, xSize_, devicesOfCell()}, measured_);
  if (!gains_.empty())
    state.putFixed(context, prefix + kAdcGains, Tensor::Type::F32, {arraysOfRead(), dSize_},
                   gains_);
  state.values[prefix + kForwardSamples] = Value(counters_.forwardSamples);
  state.values[prefix + kBackwardSamples] = Value(counters_.backwardSamples);
  state.values[prefix + kTrainingRead] = Value(trainingRead_);
  if (params_.modifier_every == ModifierEvery::Step)
    state.values[prefix + kNewStep] = Value(static_cast<int64_t>(isNewStep_));
  state.values[prefix + kPastForward] = Value(pastForward_);
  state.values[prefix + kPastBackward] = Value(pastBackward_);
}

void InferenceDevice::loadFrom(const Context &context, const State &state,
                               const std::string &prefix) {
  const auto status = static_cast<Status>(state.counter(prefix + kStatus, 2));
  const ProgrammedPoint point{
      state.counter(prefix + kNumber, kMostProgrammings), *state.values.at(prefix + kTime).real(),
      state.counter(prefix + kRedraw, kMostRedraws), state.counter(prefix + kChip, kMostChips)};
  try {
    requireTime(point.time);
  } catch (const ConfigError &error) {
    throw StateError(message("the state holds a point that cannot be read: ", error.what()));
  }
  Counters counters;
  counters.forwardSamples = state.counter(prefix + kForwardSamples, kMostCounted);
  counters.backwardSamples = state.counter(prefix + kBackwardSamples, kMostCounted);
  const uint64_t trainingRead = state.counter(prefix + kTrainingRead, kMostCounted);
  const bool isNewStep =
      state.values.count(prefix + kNewStep) == 0 || state.counter(prefix + kNewStep, 1) == 1;
  const auto past = [&](const char *name) {
    return state.values.count(prefix + name) ? state.counter(prefix + name) : 0;
  };
  if (!state.packed) loadGains(context, state, prefix);
  state.take(context, prefix + "weights", Tensor::Type::F32, {dSize_, xSize_}, weights_);
  for (int k = 0; k < arraysOfRead(); ++k) {
    passOf(k).forward().loadFrom(context, state, prefix + nameOfReads(k, "forward/"));
    passOf(k).backward().loadFrom(context, state, prefix + nameOfReads(k, "backward/"));
  }
  unprogram(context);
  trainingRead_ = trainingRead;
  isNewStep_ = isNewStep;
  if (state.tensors.count(prefix + kMeasured)) {
    measured_.reserve(context, dSize_ * xSize_ * devicesOfCell());
    state.take(context, prefix + kMeasured, Tensor::Type::F32, {dSize_, xSize_, devicesOfCell()},
               measured_);
  }
  if (status == Status::Programmed) {
    startProgramming(context, point.number, point.chip);
    realiseFirst(context, point);
    show(point);
  }
  pastForward_ = past(kPastForward);
  pastBackward_ = past(kPastBackward);
  if (status == Status::Unprogrammed) return;
  status_ = status;
  point_ = point;
  counters_ = counters;
}

}  // namespace pulsora
