#include "transfer/line_trains.h"

#include "core/backend.h"
#include "transfer/line_functors.h"

namespace pulsora {

void LineTrains::reserve(const Context &context, int64_t lines, int64_t others, bool columns,
                         float lr, float granularity, const UpdateParameters &parameters) {
  ones_.reserve(context, lines);
  maker_.reserve(context, lines, columns ? 1 : others, columns ? others : 1, lr, granularity,
                 parameters);
}

void LineTrains::count(const Context &context, MatrixView<const float> values, bool columns,
                       float lr, float granularity, const UpdateParameters &parameters,
                       RandomKey key, uint64_t firstSample, float *counts, uint64_t *slots) {
  reserve(context, values.rows, values.cols, columns, lr, granularity, parameters);
  forEach(context, values.rows, Ones{ones_.data()});
  const auto driven = rowMajor<const float>(ones_.data(), values.rows, 1);
  maker_.makeWords(context, columns ? driven : values, columns ? values : driven, lr, granularity,
                   parameters, key, firstSample, slots);
  forEach(context, values.size(), LineCounts{maker_.words(), columns, values.cols, counts});
}

}  // namespace pulsora
