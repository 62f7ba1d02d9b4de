#include "lrtt/accumulated_update.h"

#include "array/cell_functors.h"
#include "array/events.h"
#include "core/backend.h"
#include "linalg/math_util.h"

namespace pulsora {

AccumulatedUpdate::AccumulatedUpdate(const Context &context, bool used, const PulsedDevice &a,
                                     const PulsedDevice &b)
    : used_(used),
      a_{a.rows(), a.cols(), {}},
      b_{b.rows(), b.cols(), {}},
      mostFlushes_(PulseWriter::mostSendings(a)) {
  if (!used) return;
  a_.values = Buffer<float>::zeros(context, a.size());
  b_.values = Buffer<float>::zeros(context, b.size());
}

void AccumulatedUpdate::reserveFlush(const Context &context, const PulsedDevice &a,
                                     const PulsedDevice &b) {
  if (!used_) return;
  writer_.reserve(context, a);
  writer_.reserve(context, b);
}

void AccumulatedUpdate::requireRoom(uint64_t flushes) const {
  if (used_) pulsora::requireRoom(flushes_, flushes, mostFlushes_, "writes of accumulated updates");
}

void AccumulatedUpdate::reserve(const Context &context, int64_t samples, int64_t columns) {
  if (used_) scaled_.reserve(context, samples * columns);
}

void AccumulatedUpdate::accumulateA(const Context &context, MatrixView<const float> x,
                                    MatrixView<const float> d, float lr) {
  accumulate(context, a_, x, d, lr);
}

void AccumulatedUpdate::accumulateB(const Context &context, MatrixView<const float> x,
                                    MatrixView<const float> d, float lr) {
  accumulate(context, b_, x, d, lr);
}

void AccumulatedUpdate::accumulate(const Context &context, Accumulator &sum,
                                   MatrixView<const float> x, MatrixView<const float> d, float lr) {
  if (x.rows == 0) return;
  reserve(context, d.rows, d.cols);
  forEach(context, d.size(), ScaledCopier{d, -lr, scaled_.data()});
  const MatrixView<const float> scaled = rowMajor<const float>(scaled_.data(), d.rows, d.cols);
  pulsora::accumulate(context, scaled.transposed(), x, sum.view());
}

void AccumulatedUpdate::flush(const Context &context, PulsedDevice &a, PulsedDevice &b, int most) {
  if (!used_) return;
  writer_.flush(context, a, a_.view(), most, flushes_);
  writer_.flush(context, b, b_.view(), most, flushes_);
  ++flushes_;
}

void AccumulatedUpdate::turnA(const Context &context, const float *factors) {
  if (used_) forEach(context, a_.rows * a_.cols, ColumnScaler{factors, a_.cols, a_.values.data()});
}

void AccumulatedUpdate::reset(const Context &context) {
  if (!used_) return;
  scal(context, 0.0f, a_.view());
  scal(context, 0.0f, b_.view());
}

void AccumulatedUpdate::saveTo(const Context &context, State &state,
                               const std::string &prefix) const {
  if (!used_) return;
  state.put(context, prefix + "fast_a/owed", Tensor::Type::F32, {a_.rows, a_.cols}, a_.values);
  state.put(context, prefix + "fast_b/owed", Tensor::Type::F32, {b_.rows, b_.cols}, b_.values);
  state.values[prefix + "sendings"] = Value(flushes_);
}

void AccumulatedUpdate::loadFrom(const Context &context, const State &state,
                                 const std::string &prefix) {
  if (!used_) return;
  flushes_ = state.counter(prefix + "sendings", mostFlushes_);
  state.take(context, prefix + "fast_a/owed", Tensor::Type::F32, {a_.rows, a_.cols}, a_.values);
  state.take(context, prefix + "fast_b/owed", Tensor::Type::F32, {b_.rows, b_.cols}, b_.values);
}

}  // namespace pulsora
