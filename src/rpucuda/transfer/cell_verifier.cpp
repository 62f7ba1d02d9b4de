#include "transfer/cell_verifier.h"

#include <algorithm>
#include <cmath>

#include "array/events.h"
#include "core/backend.h"

namespace pulsora {

double readingError(const IOParameters &p) {
  const auto square = [](double number) { return number * number; };
  const double noise = square(static_cast<double>(p.out_noise)) +
                       square(static_cast<double>(p.w_noise)) + square(p.outputStep()) / 12.0;
  return std::sqrt(noise) * std::abs(static_cast<double>(p.out_scale));
}

int readsFor(const IOParameters &periphery, float tolerance) {
  const double ratio = 2.0 * readingError(periphery) / static_cast<double>(tolerance);
  return static_cast<int>(std::clamp(std::ceil(ratio * ratio), 1.0, double{kMostReads}));
}

CellVerifier::CellVerifier(const Context &context, const IOParameters &forward,
                           const IOParameters &backward, int64_t rows, int64_t cols,
                           const ReadKeys &keys, const ProgramSettings &settings, int reads)
    : rows_(rows),
      cols_(cols),
      settings_(settings),
      reads_(reads),
      error_(readingError(drivesColumns(rows, cols) ? forward : backward) /
             std::sqrt(static_cast<double>(reads))),
      read_(drivesColumns(rows, cols)
                ? AnalogRead(context, forward, Pass::Forward, cols, rows, keys)
                : AnalogRead(context, backward, Pass::Backward, rows, cols, keys)) {}

uint64_t CellVerifier::samplesPerRun() const {
  return static_cast<uint64_t>(settings_.rounds + 1) * static_cast<uint64_t>(reads_) *
         static_cast<uint64_t>(std::min(rows_, cols_));
}

uint64_t CellVerifier::mostRuns() const { return kMostCounted / samplesPerRun(); }

void CellVerifier::reserve(const Context &context, const PulsedDevice &array) {
  programmer_.reserve(context, array, 1);
  readings_.reserve(context, array.size());
  steered_.reserve(context, array.size());
  done_.reserve(context, array.size());
  counts_.reserve(context, 1);
}

void CellVerifier::read(const Context &context, const VerifiedCells &cells, int round) {
  const bool columns = drivesColumns(rows_, cols_);
  const uint64_t each = samplesPerRun() / static_cast<uint64_t>(settings_.rounds + 1);
  const MatrixView<const float> weights = columns ? cells.weights : cells.weights.transposed();
  const OneHotRead one = read_.oneHot(weights, firstRead_ + static_cast<uint64_t>(round) * each);
  forEach(context, rows_ * cols_, CellReadings{cells, one, columns, reads_});
}

MatrixView<const float> CellVerifier::begin(const Context &context, const PulsedDevice &array,
                                            uint64_t run) {
  reserve(context, array);
  restart(context, run);
  read(context, {array.weights(), nullptr, readings_.data(), done_.data(), counts_.data()}, 0);
  return rowMajor<const float>(readings_.data(), rows_, cols_);
}

MatrixView<const float> CellVerifier::goOn(const Context &context, uint64_t run) {
  restart(context, mostRuns() / 2 + run);
  return rowMajor<const float>(readings_.data(), rows_, cols_);
}

void CellVerifier::restart(const Context &context, uint64_t run) {
  firstRead_ = run * samplesPerRun();
  detail::fillZero(context, done_.data(), done_.bytes());
  detail::fillZero(context, counts_.data(), counts_.bytes());
}

void CellVerifier::run(const Context &context, PulsedDevice &array, float *targets,
                       uint64_t firstSample) {
  const auto cells = [&] {
    return VerifiedCells{array.weights(), targets, readings_.data(), done_.data(), counts_.data()};
  };
  const auto steered = rowMajor<const float>(steered_.data(), rows_, cols_);
  for (int round = 0; round <= settings_.rounds; ++round) {  // the last one only counts
    const bool sends = round < settings_.rounds;
    const float accepted =
        sends ? acceptedError(settings_.tolerance, round, settings_.rounds) : 0.0f;
    forEach(context, array.size(), VerifySteering{cells(), sends, accepted, steered_.data()});
    programmer_.run(context, array, steered, {settings_.tolerance, sends ? 1 : 0, settings_.most},
                    firstSample + static_cast<uint64_t>(round));
    forEach(context, 1, RoundCounts{programmer_.counts(), counts_.data()});
    if (sends) read(context, cells(), round + 1);
  }
  forEach(context, array.size(), MissingReadings{readings_.data(), targets});
}

}  // namespace pulsora
