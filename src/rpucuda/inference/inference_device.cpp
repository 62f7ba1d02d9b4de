#include "inference/inference_device.h"

#include <cmath>

#include "array/cell_functors.h"
#include "array/events.h"
#include "core/backend.h"
#include "inference/functors.h"
#include "linalg/math_util.h"
#include "numerics/abs_max.h"

namespace pulsora {
namespace {

// Names of values in states.
constexpr const char *kStatus = "programming/status";
constexpr const char *kNumber = "programming/number";
constexpr const char *kTime = "programming/time";
constexpr const char *kRedraw = "programming/redraw";
constexpr const char *kForwardSamples = "programming/forward_samples";
constexpr const char *kBackwardSamples = "programming/backward_samples";
constexpr const char *kTrainingRead = "training_read";

double meanOf(const std::vector<float> &values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

}  // namespace

std::unique_ptr<AnalogDevice> InferenceParams::make(const CompoundSite &site) const {
  return std::make_unique<InferenceDevice>(*this, site);
}

InferenceDevice::InferenceDevice(const InferenceParams &params, const CompoundSite &site)
    : params_(params),
      cell_(cellEncoding(params.cell, params.significance, params.cell_bits)),
      keys_(site.keys),
      dSize_(site.dSize),
      xSize_(site.xSize),
      weights_(Buffer<float>::zeros(site.context, dSize_ * xSize_)),
      wanted_(Buffer<float>::zeros(site.context, dSize_ * xSize_)),
      column_(site.context, params.cell_reference == CellReference::Column ? xSize_ : 0),
      scale_(Buffer<float>::zeros(site.context, dSize_)),
      largest_(site.context, params.modifies() ? dSize_ : 0),
      outFactor_(Buffer<float>::zeros(site.context, dSize_)),
      sums_(site.context, dSize_),
      hostScale_(static_cast<size_t>(dSize_)),
      factors_(static_cast<size_t>(dSize_), 1.0f),
      pass_(site.context, site.periphery.forward, site.periphery.backward, dSize_, xSize_,
            keys_.ofRead(0, Role::Read)),
      readout_(site.context, site.periphery.forward, Pass::Forward, xSize_, dSize_,
               keys_.ofRead(0, Role::Readout)) {}

void InferenceDevice::forward(const Context &context, MatrixView<const float> x,
                              MatrixView<float> y, const Counters &c) {
  const bool training = !isEvaluation(c.forwardSamples);
  if (training && params_.modifies()) trainingRead_ = c.batch;
  pass_.forward().run(context, seen(context, training), x, y, c.forwardSamples);
  forEach(context, y.size(), FactorOfColumns{y, outFactor_.data(), y});
}

void InferenceDevice::backward(const Context &context, MatrixView<const float> d,
                               MatrixView<float> dx, const Counters &c) {
  const MatrixView<const float> weights = seen(context, !isEvaluation(c.backwardSamples));
  scaled_.reserve(context, d.size());
  const MatrixView<float> scaled = rowMajor(scaled_.data(), d.rows, d.cols);
  forEach(context, d.size(), FactorOfColumns{d, outFactor_.data(), scaled});
  pass_.backward().run(context, weights.transposed(), scaled, dx, c.backwardSamples);
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
  forEach(context, out.size(), FactorOfRows{realised_.data(), outFactor_.data(), out});
}

void InferenceDevice::setWeights(const Context &context, MatrixView<const float> weights,
                                 const Counters &) {
  changed();
  copy(context, weights, rowMajor(weights_.data(), dSize_, xSize_));
}

// --- what reads see

void InferenceDevice::changed() {
  dirty_ = true;
  if (isProgrammed()) status_ = Status::Stale;
}

MatrixView<const float> InferenceDevice::seen(const Context &context, bool training) {
  PULSORA_CHECK(StateError, !isStale(),
                "the weights changed after they were programmed, and the programmed array no "
                "longer stands for them; program it again, or return to the weights by "
                "unprogram()");
  if (isProgrammed()) return matrix(realised_);
  if (dirty_) normalise(context);
  if (training && params_.modifies()) {
    if (!isModified_ || modifiedRead_ != trainingRead_) modify(context);
    return matrix(realised_);
  }
  if (isModified_) restoreScales(context);
  return matrix(wanted_);
}

void InferenceDevice::normalise(const Context &context) {
  rowAbsMax(context, matrix(weights_), scale_.data());
  if (params_.scaling_per == ScalingPer::Tile)
    forEach(context, 1, LargestOfRows{scale_.data(), dSize_});
  forEach(context, dSize_ * xSize_,
          RowNormaliser{weights_.data(), scale_.data(), xSize_, wanted_.data()});
  restoreScales(context);
  dirty_ = false;
}

void InferenceDevice::restoreScales(const Context &context) {
  copy(context, rowMajor<const float>(scale_.data(), 1, dSize_),
       rowMajor(outFactor_.data(), 1, dSize_));
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

void InferenceDevice::modify(const Context &context) {
  realised_.reserve(context, dSize_ * xSize_);
  const uint64_t number = trainingRead_;
  if (params_.modifier == Modifier::NoiseModel) {
    copyScales(context);
    const uint64_t programming = modifierProgramming(number);
    const ProgrammedPoint point{programming, modifierTime(number), 0};
    setFactors(context, realiseCompensated(context, point, referenceOf(context, programming)));
  } else {
    restoreScales(context);
  }
  if (params_.modifier != Modifier::NoiseModel || params_.drop_connect > 0.0f) {
    if (params_.modifier_range > 0.0f) {
      forEach(context, dSize_, Filler{params_.modifier_range, largest_.data()});
    } else {
      rowAbsMax(context, matrix(weights_), largest_.data());
      if (params_.modifier_per == ScalingPer::Tile)
        forEach(context, 1, LargestOfRows{largest_.data(), dSize_});
    }
    WeightModifier modifier{};
    modifier.rule = {params_.modifier,           params_.modifier_std,  params_.modifier_res,
                     params_.modifier_sto_round, params_.modifier_clip, params_.modifier_coeff,
                     params_.modifier_g_max,     params_.drop_connect};
    modifier.key = keys_.of(0, Role::Cells);
    modifier.number = number;
    modifier.weights = weights_.data();
    modifier.made = params_.modifier == Modifier::NoiseModel ? realised_.data() : nullptr;
    modifier.scale = scale_.data();
    modifier.largest = largest_.data();
    modifier.cells = dSize_ * xSize_;
    modifier.cols = xSize_;
    modifier.to = realised_.data();
    forEach(context, (dSize_ * xSize_ + 7) / 8, modifier);
  }
  isModified_ = true;
  modifiedRead_ = number;
}

// --- programming

void InferenceDevice::requireProgrammed() const {
  PULSORA_CHECK(StateError, isProgrammed(),
                "nothing is programmed; program the weights first, by program()");
  PULSORA_CHECK(StateError, !isStale(),
                "the weights changed after they were programmed; program them again first");
}

void InferenceDevice::requireTime(double time) const {
  PULSORA_CHECK(ConfigError, std::isfinite(time) && time >= 0.0, "time is ", time,
                "; give seconds since the end of programming, a finite number >= 0");
  const double last = params_.noise_model.lastTime();
  PULSORA_CHECK(ConfigError, time <= last, "time is ", time, " s, but ",
                params_.noise_model.model().name, " has numbers up to ", last,
                " s; choose an earlier time, or set extrapolate=True in the noise model");
}

bool InferenceDevice::program(const Context &context, uint64_t number) {
  PULSORA_CHECK(ConfigError, number <= kMostProgrammings, "number is ", number,
                "; programmings are numbered from 0 to ", kMostProgrammings);
  realised_.reserve(context, dSize_ * xSize_);
  normalise(context);
  copyScales(context);
  status_ = Status::Programmed;
  isModified_ = false;
  reference_ = referenceOf(context, number);
  moveTo(context, {number, 0.0, 0});
  float largest = 0.0f;
  for (const float scale : hostScale_) largest = std::fmax(largest, scale);
  return largest == 0.0f;
}

void InferenceDevice::drift(const Context &context, double time, uint64_t redraw) {
  requireDrift(time);
  PULSORA_CHECK(ConfigError, redraw <= kMostRedraws, "redraw is ", redraw,
                "; readings are numbered from 0 to ", kMostRedraws);
  moveTo(context, {point_.number, time, redraw});
}

void InferenceDevice::unprogram() {
  status_ = Status::Unprogrammed;
  dirty_ = true;
  point_ = {};
  factors_.assign(factors_.size(), 1.0f);
  const ReadKeys keys = keys_.ofRead(0, Role::Read);
  for (AnalogRead *read : reads()) read->setNoiseKey(keys.noise);
}

void InferenceDevice::moveTo(const Context &context, const ProgrammedPoint &point) {
  factors_ = realiseCompensated(context, point, reference_);
  setFactors(context, factors_);
  point_ = point;
  counters_ = {};
  const ReadKeys keys = keys_.ofRead(0, Role::Read);
  for (AnalogRead *read : reads()) read->setNoiseKey(keyAt(keys.noise, point));
}

Realisation InferenceDevice::realisation(const ProgrammedPoint &point) const {
  Realisation r;
  r.wanted = wanted_.data();
  r.cells = dSize_ * xSize_;
  r.cell = cell_;
  r.keys =
      RealisationKeys::at(keys_.of(0, Role::Cells), keys_.ofRead(0, Role::Cells).spreads, point);
  r.number = point.number;
  r.stuckLow = params_.stuck_low;
  r.stuckHigh = params_.stuck_high;
  return r;
}

void InferenceDevice::realiseAt(const Context &context, const ProgrammedPoint &point) {
  Realisation r = realisation(point);
  r.weights = realised_.data();
  realise(context, params_.noise_model, point.time, r);
  if (column_.empty()) return;
  r.firstDevice = static_cast<uint64_t>((r.cells + 7) / 8 * 8);
  r.wanted = nullptr;
  r.cells = xSize_;
  r.weights = column_.data();
  realise(context, params_.noise_model, point.time, r);
  forEach(context, dSize_ * xSize_, ReferenceColumn{column_.data(), xSize_, realised_.data()});
}

// The sum of the magnitudes of the one-hot readings of each output.
std::vector<double> InferenceDevice::readout(const Context &context, const ProgrammedPoint &point) {
  if (readout_.parameters().is_perfect || params_.compensation_read == CompensationRead::Exact) {
    sumRows(context, dSize_, xSize_, MagnitudeTerm{matrix(realised_)}, sums_.data());
  } else {
    readout_.setNoiseKey(keyAt(keys_.ofRead(0, Role::Readout).noise, point));
    sumRows(context, dSize_, xSize_, OneHotMagnitude{readout_.oneHot(matrix(realised_), 0)},
            sums_.data());
  }
  std::vector<double> sums(static_cast<size_t>(dSize_));
  detail::copyToHost(context, sums.data(), sums_.data(), sums_.bytes());
  return sums;
}

// The sums that a readout is compared with.
std::vector<double> InferenceDevice::referenceOf(const Context &context, uint64_t number) {
  if (params_.compensation == Compensation::None) return {};
  if (params_.compensation != Compensation::ExactReference) {
    const ProgrammedPoint start{number, 0.0, 0};
    realiseAt(context, start);
    return readout(context, start);
  }
  sumRows(context, dSize_, xSize_, MagnitudeTerm{matrix(wanted_)}, sums_.data());
  std::vector<double> sums(static_cast<size_t>(dSize_));
  detail::copyToHost(context, sums.data(), sums_.data(), sums_.bytes());
  return sums;
}

// Realises a point and returns the factors of its compensation.
std::vector<float> InferenceDevice::realiseCompensated(const Context &context,
                                                       const ProgrammedPoint &point,
                                                       const std::vector<double> &reference) {
  realiseAt(context, point);
  if (params_.compensation == Compensation::None)
    return std::vector<float>(static_cast<size_t>(dSize_), 1.0f);
  return compensationFactors(params_.compensation, readout(context, point), reference, hostScale_,
                             static_cast<double>(xSize_));
}

void InferenceDevice::copyScales(const Context &context) {
  detail::copyToHost(context, hostScale_.data(), scale_.data(), scale_.bytes());
}

void InferenceDevice::setFactors(const Context &context, const std::vector<float> &factors) {
  std::vector<float> scaled(factors);
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= hostScale_[i];
  detail::copyFromHost(context, outFactor_.data(), scaled.data(), outFactor_.bytes());
}

void InferenceDevice::getConductances(const Context &context, Conductances which, float *out) {
  requireProgrammed();
  Realisation r = realisation(point_);
  r.which = which;
  r.conductances = out;
  realise(context, params_.noise_model, point_.time, r);
}

Value::Map InferenceDevice::statistics(const Context &context) const {
  const int64_t cells = dSize_ * xSize_;
  Value::Map values = {
      {"pulses", Value(0)},
      {"saturated_cells", Value(0)},
      {"memory_bytes",
       Value(static_cast<uint64_t>(weights_.bytes() + wanted_.bytes() + realised_.bytes()))},
      {"devices", Value(cells * cell_.devices + column_.size())},
      {"compensation", Value(meanOf(factors_))}};
  if (status_ != Status::Programmed) return values;
  // The programming error relative to the weights: squares of the difference over squares.
  Buffer<double> rows(context, 2 * dSize_);
  sumRows(context, dSize_, xSize_,
          SquaredDifference{realised_.data(), outFactor_.data(), weights_.data(), xSize_},
          rows.data());
  sumRows(context, dSize_, xSize_,
          SquaredDifference{realised_.data(), nullptr, weights_.data(), xSize_},
          rows.data() + dSize_);
  std::vector<double> sums(static_cast<size_t>(2 * dSize_));
  detail::copyToHost(context, sums.data(), rows.data(), rows.bytes());
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < static_cast<size_t>(dSize_); ++i) {
    error += sums[i];
    norm += sums[static_cast<size_t>(dSize_) + i];
  }
  values["weight_error"] = Value(norm > 0.0 ? std::sqrt(error / norm) : 0.0);
  return values;
}

// --- states

void InferenceDevice::saveTo(const Context &context, State &state,
                             const std::string &prefix) const {
  state.put(context, prefix + "weights", Tensor::Type::F32, {dSize_, xSize_}, weights_);
  pass_.forward().saveTo(context, state, prefix + "forward/");
  pass_.backward().saveTo(context, state, prefix + "backward/");
  state.values[prefix + kStatus] = Value(static_cast<int64_t>(status_));
  state.values[prefix + kNumber] = Value(point_.number);
  state.values[prefix + kTime] = Value(point_.time);
  state.values[prefix + kRedraw] = Value(point_.redraw);
  state.values[prefix + kForwardSamples] = Value(counters_.forwardSamples);
  state.values[prefix + kBackwardSamples] = Value(counters_.backwardSamples);
  state.values[prefix + kTrainingRead] = Value(trainingRead_);
}

void InferenceDevice::loadFrom(const Context &context, const State &state,
                               const std::string &prefix) {
  const auto status = static_cast<Status>(state.counter(prefix + kStatus, 2));
  const ProgrammedPoint point{state.counter(prefix + kNumber, kMostProgrammings),
                              *state.values.at(prefix + kTime).real(),
                              state.counter(prefix + kRedraw, kMostRedraws)};
  try {
    requireTime(point.time);
  } catch (const ConfigError &error) {
    throw StateError(message("the state holds a point that cannot be read: ", error.what()));
  }
  Counters counters;
  counters.forwardSamples = state.counter(prefix + kForwardSamples, kMostCounted);
  counters.backwardSamples = state.counter(prefix + kBackwardSamples, kMostCounted);
  const uint64_t trainingRead = state.counter(prefix + kTrainingRead, kMostCounted);
  state.take(context, prefix + "weights", Tensor::Type::F32, {dSize_, xSize_}, weights_);
  pass_.forward().loadFrom(context, state, prefix + "forward/");
  pass_.backward().loadFrom(context, state, prefix + "backward/");
  unprogram();
  trainingRead_ = trainingRead;
  if (status == Status::Unprogrammed) return;
  if (status == Status::Programmed) {
    program(context, point.number);
    moveTo(context, point);
  }
  status_ = status;
  point_ = point;
  counters_ = counters;
}

}  // namespace pulsora
