#include <algorithm>

#include "core/backend.h"
#include "inference/functors.h"
#include "inference/inference_device.h"
#include "linalg/math_util.h"

// Several points of an InferenceDevice at once: programmings and times whose arrays are made and
// read together.

namespace pulsora {

void InferenceDevice::programMany(const Context &context,
                                  const std::vector<ProgrammedPoint> &points) {
  PULSORA_CHECK(ConfigError, !points.empty() && static_cast<int64_t>(points.size()) <= kMostPoints,
                "there are ", points.size(), " points; give 1 to ", kMostPoints);
  for (const ProgrammedPoint &point : points) {
    requireTime(point.time);
    PULSORA_CHECK(ConfigError,
                  point.number <= kMostProgrammings && point.chip <= kMostChips &&
                      point.redraw <= kMostRedraws,
                  "a point is beyond the largest numbers of programmings, readings or chips");
    PULSORA_CHECK(ConfigError, point.chip == points.front().chip, "points are of chips ",
                  points.front().chip, " and ", point.chip,
                  "; the converters of a read are those of one chip");
  }
  const int64_t numbers = numbersOfRead();
  const auto count = static_cast<int64_t>(points.size());
  many_.reserve(context, count * numbers);
  manyFactors_.reserve(context, count * dSize_);
  if (isWindowed()) manyVariances_.reserve(context, count * numbers);
  const auto isOfProgramming = [&](const ProgrammedPoint &point) {
    return point.number == point_.number && point.chip == point_.chip;
  };
  const bool keepsMeasured = status_ == Status::Programmed && isMeasured() &&
                             std::all_of(points.begin(), points.end(), isOfProgramming);
  if (!keepsMeasured) measured_ = {};
  for (int64_t r = 0; r < count;) {
    const ProgrammedPoint &first = points[static_cast<size_t>(r)];
    startProgramming(context, first.number, first.chip);
    std::vector<PointOfArray> all;
    if (readsReference()) {
      all.push_back({{first.number, 0.0, 0, first.chip}, realised(), nullptr});
    } else {
      takeReference(context, first);
    }
    for (; r < count && points[static_cast<size_t>(r)].number == first.number; ++r) {
      float *seen = many_.data() + r * numbers;
      const RealisedArray to{isApart() ? realised_.data() : seen, isApart() ? seen : nullptr,
                             isWindowed() ? manyVariances_.data() + r * numbers : nullptr};
      all.push_back({points[static_cast<size_t>(r)], to, manyFactors_.data() + r * dSize_});
    }
    realisePoints(context, all);
  }
  // The last point is the array that stays.
  const auto take = [&](const Buffer<float> &all, int64_t size, float *to) {
    copy(context, rowMajor<const float>(all.data() + (count - 1) * size, 1, size),
         rowMajor(to, 1, size));
  };
  take(many_, numbers, isApart() ? slices_.data() : realised_.data());
  if (isWindowed()) take(manyVariances_, numbers, variance_.data());
  take(manyFactors_, dSize_, outFactor_.data());
  show(points.back());
  points_ = points;
}

void InferenceDevice::forwardMany(const Context &context, MatrixView<const float> x,
                                  MatrixView<float> y, uint64_t firstSample) {
  const int64_t rows = x.rows / pointsOfRead();
  for (int64_t r = 0; r < pointsOfRead(); ++r) {
    const MatrixView<const float> from = x.block(r * rows, 0, rows, x.cols);
    const MatrixView<float> to = y.block(r * rows, 0, rows, y.cols);
    const float *seen = many_.data() + r * numbersOfRead();
    keyReads(&points_[static_cast<size_t>(r)]);
    if (isWindowed()) setVariances(manyVariances_.data() + r * numbersOfRead());
    if (isApart()) {
      readSlices(context, Pass::Forward, seen, from, to, firstSample);
    } else {
      pass_.forward().run(context, rowMajor(seen, dSize_, xSize_), from, to, firstSample);
    }
  }
  scaleColumns(context, y, manyFactors_.data(), y, rows);
  keyReads(&point_);
  setVariances(cellVariance());
}

// realiseCompensated() of points of one programming.
void InferenceDevice::realisePoints(const Context &context,
                                    const std::vector<PointOfArray> &points) {
  if (!isRealisedAtOnce()) {
    for (const PointOfArray &array : points) realiseCompensated(context, array);
    return;
  }
  std::vector<TimedRealisation> readings;
  for (const auto &[point, to, outFactor] : points) {
    readings.push_back({point.time, realisation(point)});
    readings.back().realisation.weights = to.weights;
    readings.back().realisation.variance = to.variance;
  }
  realiseReadings(context, params_.noise_model, readings);
  for (const PointOfArray &array : points) compensate(context, array);
}

}  // namespace pulsora
