#include <cmath>

#include "core/backend.h"
#include "inference/functors.h"
#include "inference/inference_device.h"
#include "inference/weight_span.h"
#include "linalg/math_util.h"
#include "periphery/one_hot_sums.h"

// The programmed array of an InferenceDevice: programming, drift, compensation, conductances.

namespace pulsora {
namespace {

double meanOf(const std::vector<float> &values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

}  // namespace

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

void InferenceDevice::program(const Context &context, const ProgrammedPoint &point) {
  PULSORA_CHECK(ConfigError, point.number <= kMostProgrammings, "number is ", point.number,
                "; programmings are numbered from 0 to ", kMostProgrammings);
  PULSORA_CHECK(ConfigError, point.chip <= kMostChips, "chip is ", point.chip,
                "; chips are numbered from 0 to ", kMostChips);
  PULSORA_CHECK(ConfigError, point.redraw <= kMostRedraws, "redraw is ", point.redraw,
                "; readings are numbered from 0 to ", kMostRedraws);
  requireTime(point.time);
  measured_ = {};
  startProgramming(context, point.number, point.chip);
  realiseFirst(context, point);
  show(point);
}

void InferenceDevice::programMeasured(const Context &context, const float *conductances,
                                      uint64_t number) {
  PULSORA_CHECK(ConfigError, column_.empty(), "cell_reference is 'column', whose conductances are ",
                "not among those of the cells; measured conductances need 'digital'");
  PULSORA_CHECK(ConfigError, number <= kMostProgrammings, "number is ", number,
                "; programmings are numbered from 0 to ", kMostProgrammings);
  const int64_t devices = dSize_ * xSize_ * devicesOfCell();
  pulsed_ = {};
  measured_.reserve(context, devices);
  copy(context, rowMajor(conductances, 1, devices), rowMajor(measured_.data(), 1, devices));
  const ProgrammedPoint start{number, 0.0, 0, 0};
  startProgramming(context, number, start.chip);
  realiseFirst(context, start);
  show(start);
}

// Starts a programming of the present weights: scales and converters.
void InferenceDevice::startProgramming(const Context &context, uint64_t number, uint64_t chip) {
  reserveArray(context);
  if (dirty_) {
    normalise(context);
  } else {
    restoreScales(context);
  }
  makeWanted(context);
  useChip(context, chip);
  if (!isMeasured()) writePulses(context, number, chip);
  status_ = Status::Programmed;
  isModified_ = false;
  points_.clear();
}

void InferenceDevice::useChip(const Context &context, uint64_t chip) {
  if (chip == chip_) return;
  for (int k = 0; k < arraysOfRead(); ++k) {
    const ReadKeys keys = keys_.ofRead(static_cast<uint32_t>(k), Role::Read);
    const RandomKey spreads = keyOfChip(keys.spreads, chip);
    for (AnalogRead *read : {&passOf(k).forward(), &passOf(k).backward(), &readoutOf(k)})
      read->drawSpreads(context, spreads);
  }
  chip_ = chip;
}

void InferenceDevice::drift(const Context &context, double time, uint64_t redraw) {
  requireDrift(time);
  PULSORA_CHECK(ConfigError, redraw <= kMostRedraws, "redraw is ", redraw,
                "; readings are numbered from 0 to ", kMostRedraws);
  const ProgrammedPoint point{point_.number, time, redraw, point_.chip};
  realiseCompensated(context, {point, realised(), outFactor_.data()});
  show(point);
}

void InferenceDevice::unprogram(const Context &context) {
  status_ = Status::Unprogrammed;
  useChip(context, 0);
  points_.clear();
  measured_ = {};
  pulsed_ = {};
  setVariances(nullptr);
  dirty_ = true;
  point_ = {};
  startReads();
  keyReads(nullptr);
}

void InferenceDevice::keyReads(const ProgrammedPoint *point) {
  for (int k = 0; k < arraysOfRead(); ++k) {
    const RandomKey noise = keys_.ofRead(static_cast<uint32_t>(k), Role::Read).noise;
    for (AnalogRead *read : {&passOf(k).forward(), &passOf(k).backward()})
      read->setNoiseKey(point ? keyAt(noise, *point) : noise);
  }
}

// Lets reads see the array that was realised last.
void InferenceDevice::show(const ProgrammedPoint &point) {
  points_.clear();
  setVariances(cellVariance());
  point_ = point;
  startReads();
  keyReads(&point);
}

// The reads of a point are numbered from 0.
void InferenceDevice::startReads() {
  pastForward_ += counters_.forwardSamples;
  pastBackward_ += counters_.backwardSamples;
  counters_ = {};
}

Realisation InferenceDevice::realisation(const ProgrammedPoint &point, int k) const {
  const ReadKeys keys = keys_.ofRead(static_cast<uint32_t>(k), Role::Cells);
  Realisation r;
  r.wanted = wanted_.data();
  r.cells = cells();
  r.cell = cell_;
  r.keys = RealisationKeys::at(keys.noise, keys.spreads, point);
  r.number = point.number;
  r.stuckLow = isMeasured() ? 0.0f : params_.stuck_low;
  r.stuckHigh = isMeasured() ? 0.0f : params_.stuck_high;
  r.measured = given() ? given()->data() : nullptr;
  if (isWindowed()) {
    const double slow =
        params_.noise_model.slowShare(point.time, static_cast<double>(params_.read_window));
    r.frozen = static_cast<float>(std::sqrt(slow));
    r.fresh = static_cast<float>(std::sqrt(1.0 - slow));
  }
  return r;
}

// The weights in [-1, 1] that cells hold in one part.
const float *InferenceDevice::heldByCells(const Context &context) {
  if (!spansData()) return wanted_.data();
  plane_.reserve(context, cells());
  forEach(context, cells(),
          SpanTaker{wanted_.data(), centre_.data(), half_.data(), xSize_, plane_.data()});
  return plane_.data();
}

void InferenceDevice::realiseAt(const Context &context, const ProgrammedPoint &point,
                                const RealisedArray &to) {
  if (isInParts()) {
    realiseSlices(context, point, to);
    return;
  }
  Realisation r = realisation(point);
  r.wanted = heldByCells(context);
  r.weights = to.weights;
  r.variance = to.variance;
  realise(context, params_.noise_model, point.time, r);
  if (!column_.empty()) {
    r.firstDevice = static_cast<uint64_t>((r.cells + 7) / 8 * 8);
    r.wanted = nullptr;
    r.cells = xSize_;
    r.weights = column_.data();
    realise(context, params_.noise_model, point.time, r);
    forEach(context, cells(), ReferenceColumn{column_.data(), xSize_, to.weights});
  }
  if (!spansData()) return;
  forEach(context, cells(),
          SpanReader{centre_.data(), half_.data(), xSize_, to.weights, to.variance});
}

// The sum of the magnitudes of the one-hot readings of each output.
void InferenceDevice::readOut(const Context &context, const ProgrammedPoint &point,
                              const RealisedArray &array, Buffer<double> &sums) {
  const auto seen = rowMajor<const float>(array.weights, dSize_, xSize_);
  if (readout_.parameters().is_perfect || params_.compensation_read == CompensationRead::Exact) {
    sumRows(context, dSize_, xSize_, MagnitudeTerm{seen}, sums.data());
    return;
  }
  if (array.slices) {
    readOutSlices(context, point, array, sums);
    return;
  }
  readout_.setNoiseKey(keyAt(keys_.ofRead(0, Role::Readout).noise, point));
  readout_.setCellVariance(array.variance);
  sumOneHot(context, readout_.oneHot(seen, 0), sums.data());
}

// Takes the sums that readouts of the programming of a point are compared with. Unless these are of
// the weights themselves, realised_ then holds the array at time 0.
void InferenceDevice::takeReference(const Context &context, const ProgrammedPoint &point) {
  if (params_.compensation == Compensation::None) return;
  if (params_.compensation == Compensation::ExactReference) {
    sumRows(context, dSize_, xSize_, MagnitudeTerm{matrix(wanted_)}, reference_.data());
    return;
  }
  const ProgrammedPoint start{point.number, 0.0, 0, point.chip};
  realiseAt(context, start, realised());
  readOut(context, start, realised(), reference_);
}

// Realises a point, and makes the factors on its outputs.
void InferenceDevice::realiseCompensated(const Context &context, const PointOfArray &array) {
  realiseAt(context, array.point, array.to);
  compensate(context, array);
}

// Realises a point of a programming that was not seen yet: with the array at time 0, if the
// compensation compares readouts with one of it.
void InferenceDevice::realiseFirst(const Context &context, const ProgrammedPoint &point) {
  const ProgrammedPoint start{point.number, 0.0, 0, point.chip};
  const PointOfArray seen{point, realised(), outFactor_.data()};
  const bool isStart = point.time == 0.0 && point.redraw == 0;
  if (readsReference() && !isStart && isRealisedAtOnce() && !isWindowed()) {
    start_.reserve(context, cells());
    realisePoints(context, {{start, {start_.data(), nullptr, nullptr}, nullptr}, seen});
    return;
  }
  takeReference(context, start);
  if (!readsReference() || !isStart) {
    realiseCompensated(context, seen);
    return;
  }
  // The array is realised already: as it was when the reference was read, so that factors are 1.
  forEach(context, dSize_, Filler{1.0f, factor_.data()});
  copy(context, rowMajor<const float>(scale_.data(), 1, dSize_),
       rowMajor(outFactor_.data(), 1, dSize_));
}

// Makes the factors on the outputs of a realised array, or takes the reference of others.
void InferenceDevice::compensate(const Context &context, const PointOfArray &array) {
  const Compensation rule = params_.compensation;
  if (!array.outFactor) return readOut(context, array.point, array.to, reference_);
  if (rule != Compensation::None) readOut(context, array.point, array.to, sums_);
  if (rule == Compensation::Global || rule == Compensation::ExactReference)
    sumRows(context, 3, dSize_, WeightedReadings{reference_.data(), sums_.data(), scale_.data()},
            weighted_.data());
  forEach(context, dSize_,
          OutputCompensation{rule, reference_.data(), sums_.data(), weighted_.data(),
                             static_cast<double>(xSize_), scale_.data(), factor_.data(),
                             array.outFactor});
}

std::vector<float> InferenceDevice::scales(const Context &context) {
  if (!isProgrammed() && dirty_) normalise(context);
  std::vector<float> scales(static_cast<size_t>(dSize_));
  detail::copyToHost(context, scales.data(), scale_.data(), scale_.bytes());
  return scales;
}

std::vector<float> InferenceDevice::compensation(const Context &context) const {
  std::vector<float> factors(static_cast<size_t>(dSize_), 1.0f);
  if (isProgrammed()) detail::copyToHost(context, factors.data(), factor_.data(), factor_.bytes());
  return factors;
}

void InferenceDevice::getConductances(const Context &context, Conductances which, float *out) {
  requireProgrammed();
  conductancesAt(context, point_, which, out);
}

void InferenceDevice::conductancesAt(const Context &context, const ProgrammedPoint &point,
                                     Conductances which, float *out) {
  if (isInParts()) {
    sliceConductancesAt(context, point, which, out);
    return;
  }
  Realisation r = realisation(point);
  r.wanted = heldByCells(context);
  r.which = which;
  r.conductances = out;
  realise(context, params_.noise_model, point.time, r);
}

void InferenceDevice::countHardware(const Counters &c, HardwareCounts &counts) const {
  counts.addArray("devices", dSize_, xSize_ * devicesOfCell(), 0, 0);
  countReads(counts, Pass::Forward, c.forwardSamples + pastForward_ + counters_.forwardSamples);
  countReads(counts, Pass::Backward, c.backwardSamples + pastBackward_ + counters_.backwardSamples);
  countDigitalUpdates(c, counts);
}

Value::Map InferenceDevice::statistics(const Context &context) const {
  Value::Map values = {{"pulses", Value(0)},
                       {"saturated_cells", Value(0)},
                       {"memory_bytes", Value(static_cast<uint64_t>(memoryBytes()))},
                       {"devices", Value(cells() * devicesOfCell() + column_.size())}};
  if (isStale()) return values;
  values["compensation"] = Value(meanOf(compensation(context)));
  if (!isProgrammed()) return values;
  addWriteStatistics(context, values);
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

}  // namespace pulsora
