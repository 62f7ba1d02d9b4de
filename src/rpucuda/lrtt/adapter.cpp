#include "lrtt/adapter.h"

#include "periphery/joined_reads.h"
#include "compounds/array_ids.h"
#include "core/backend.h"
#include "lrtt/functors.h"
#include "lrtt/reinit.h"
#include "core/math_util.h"
#include "array/cell_functors.h"

namespace RPU {
namespace {

// A scratch matrix, gapless.
MatrixView<float> scratch(const Context &context, Buffer<float> &buffer, int64_t rows,
                          int64_t cols) {
  buffer.reserve(context, rows * cols);
  return rowMajor(buffer.data(), rows, cols);
}

void copyMatrix(const Context &context, MatrixView<const float> from, MatrixView<float> to) {
  forEach(context, from.size(), ElementCopier{from, to});
}

}  // namespace

LRTTAdapter::LRTTAdapter(const Context &context, const LRTTSettings &s, const IOParameters &forward,
                         const IOParameters &backward, uint64_t seed, uint32_t tileId)
    : settings_(s),
      a_(context, s.params.fast, s.outputs, s.rank, makeKey(seed, tileId, ArrayId::FastA),
         static_cast<uint32_t>(ArrayId::FastA)),
      b_(context, s.params.fast, s.rank, s.inputs, makeKey(seed, tileId, ArrayId::FastB),
         static_cast<uint32_t>(ArrayId::FastB)),
      // Used transposed, an array's forward direction serves the tile's backward.
      ioA_(context, s.params.swap_xd ? backward : forward, s.params.swap_xd ? forward : backward,
           s.outputs, s.rank, makeKey(seed, tileId, ArrayId::FastAIo)),
      ioB_(context, s.params.swap_xd ? backward : forward, s.params.swap_xd ? forward : backward,
           s.rank, s.inputs, makeKey(seed, tileId, ArrayId::FastBIo)),
      projectionA_(context, ioA_.backward().parameters(), Pass::Backward, s.outputs, s.rank,
                   makeKey(seed, tileId, ArrayId::ProjectionAIo)),
      projectionB_(context, ioB_.forward().parameters(), Pass::Forward, s.inputs, s.rank,
                   makeKey(seed, tileId, ArrayId::ProjectionBIo)),
      updaterA_(s.fastUpdate, makeKey(seed, tileId, ArrayId::FastAUpdate)),
      updaterB_(s.fastUpdate, makeKey(seed, tileId, ArrayId::FastBUpdate)),
      reinitKey_(makeKey(seed, tileId, ArrayId::Reinit)),
      snapshotA_(Buffer<float>::zeros(context, a_.size())),
      snapshotB_(Buffer<float>::zeros(context, b_.size())),
      zero_(Buffer<float>::zeros(context, 1)) {
  if (s.params.reinit == Reinit::Svd) {
    reinitVectors_ = Buffer<float>::zeros(context, b_.size());
    return;  // B waits for its vectors
  }
  const MatrixView<float> target = scratch(context, newB_, b_.rows(), b_.cols());
  drawB(context, target);
  write(context, b_, target);
  reinits_ = 1;
}

Pass LRTTAdapter::own(Pass pass) const {
  return (pass == Pass::Forward) != settings_.params.swap_xd ? Pass::Forward : Pass::Backward;
}

LRTTAdapter::Stage LRTTAdapter::first(Pass ownPass) {
  if (ownPass == Pass::Forward) return {ioB_.forward(), b_.weights()};
  return {ioA_.backward(), a_.weights().transposed()};
}

LRTTAdapter::Stage LRTTAdapter::second(Pass ownPass) {
  if (ownPass == Pass::Forward) return {ioA_.forward(), a_.weights()};
  return {ioB_.backward(), b_.weights().transposed()};
}

void LRTTAdapter::addProduct(const Context &context, Pass pass, MatrixView<const float> in,
                             MatrixView<const float> gate, MatrixView<float> read,
                             MatrixView<float> out, uint64_t firstSample) {
  const MatrixView<float> inner = scratch(context, inner_, in.rows, settings_.rank);
  const MatrixView<float> product = scratch(context, product_, out.rows, out.cols);
  const Stage one = first(own(pass));
  one.read.run(context, one.weights, in, inner, firstSample);
  if (settings_.params.projection == Projection::Reuse) keep(context, kept(own(pass)), inner);
  if (read.data) copyMatrix(context, inner, read);
  if (gate.data) forEach(context, inner.size(), GateMultiplier{gate, inner.data});
  const Stage two = second(own(pass));
  two.read.run(context, two.weights, inner, product, firstSample);
  forEach(context, out.size(), ScaledAdder{product.data, settings_.alpha, out});
}

bool LRTTAdapter::joins(const Context &context, Pass pass) {
  return settings_.rank <= kFewLines && first(own(pass)).read.joinable(context) &&
         second(own(pass)).read.joinable(context);
}

void LRTTAdapter::readWith(const Context &context, Pass pass, AnalogRead &read,
                           MatrixView<const float> weights, MatrixView<const float> in,
                           MatrixView<float> out, uint64_t firstSample) {
  const MatrixView<float> inner = scratch(context, inner_, in.rows, settings_.rank);
  const Stage one = first(own(pass));
  const Stage two = second(own(pass));
  const PlainRead firstRead = one.read.join(context, one.weights, in, inner, firstSample);
  const AddedRead added{two.read.join(context, two.weights, inner,
                                      rowMajor<float>(nullptr, out.rows, out.cols), firstSample),
                        settings_.alpha};
  read.runWithAdapter(context, weights, in, out, firstSample, firstRead, added);
  if (settings_.params.projection == Projection::Reuse) keep(context, kept(own(pass)), inner);
}

void LRTTAdapter::addExactProduct(const Context &context, Pass pass, MatrixView<const float> in,
                                  MatrixView<float> out) {
  const MatrixView<float> inner = scratch(context, inner_, in.rows, settings_.rank);
  gemm(context, 1.0f, in, first(own(pass)).weights.transposed(), 0.0f, inner);
  gemm(context, settings_.alpha, inner, second(own(pass)).weights.transposed(), 1.0f, out);
}

void LRTTAdapter::keep(const Context &context, KeptRead &kept, MatrixView<const float> read) {
  kept.values.reserve(context, read.size());
  kept.rows = read.rows;
  kept.used = 0;
  keptStale_ = false;
  copyMatrix(context, read, rowMajor(kept.values.data(), read.rows, read.cols));
}

void LRTTAdapter::takeSnapshot(const Context &context) {
  if (snapshotTaken_) return;
  copyMatrix(context, a_.weights(), rowMajor(snapshotA_.data(), a_.rows(), a_.cols()));
  copyMatrix(context, b_.weights(), rowMajor(snapshotB_.data(), b_.rows(), b_.cols()));
  snapshotTaken_ = true;
}

void LRTTAdapter::project(const Context &context, MatrixView<const float> in,
                          MatrixView<const float> out, uint64_t firstSample) {
  const MatrixView<float> g = scratch(context, g_, in.rows, settings_.rank);
  const MatrixView<float> e = scratch(context, e_, in.rows, settings_.rank);
  const Projection projection = settings_.params.projection;
  // After a re-init within the mini-batch, what was read before it belongs to arrays that are gone.
  if (projection == Projection::Reuse && !keptStale_) {
    takeKept(context, keptG_, g);
    takeKept(context, keptE_, e);
    return;
  }
  takeSnapshot(context);
  const auto a = rowMajor<const float>(snapshotA_.data(), a_.rows(), a_.cols());
  const auto b = rowMajor<const float>(snapshotB_.data(), b_.rows(), b_.cols());
  if (projection == Projection::Exact) {
    gemm(context, 1.0f, in, b.transposed(), 0.0f, g);
    gemm(context, 1.0f, out, a, 0.0f, e);
  } else {
    projectionB_.run(context, b, in, g, firstSample);
    projectionA_.run(context, a.transposed(), out, e, firstSample);
  }
}

void LRTTAdapter::takeKept(const Context &context, KeptRead &kept, MatrixView<float> to) {
  copyMatrix(context,
             rowMajor<const float>(kept.values.data(), kept.rows, to.cols)
                 .block(kept.used, 0, to.rows, to.cols),
             to);
  kept.used += to.rows;
}

void LRTTAdapter::requireReady(int64_t samples) const {
  RPU_CHECK(ConfigError, settings_.params.reinit != Reinit::Svd || reinitVectorsSet_,
            "lrtt.reinit is 'svd' but no vectors were handed in; call setReinitVectors before the "
            "first update");
  if (settings_.params.projection != Projection::Reuse || keptStale_) return;
  const int64_t forward = keptG_.rows - keptG_.used;
  const int64_t backward = keptE_.rows - keptE_.used;
  RPU_CHECK(ConfigError, forward >= samples && backward >= samples,
            "lrtt.projection is 'reuse', but for an update of ", samples,
            " samples there are reads of ", forward, " forward and ", backward,
            " backward samples of this mini-batch; run forward and backward before the update, or "
            "set projection to "
            "'analog' or 'exact'");
}

void LRTTAdapter::update(const Context &context, MatrixView<const float> x,
                         MatrixView<const float> d, MatrixView<const float> gate, float lr,
                         uint64_t firstSample) {
  const bool swap = settings_.params.swap_xd;
  const MatrixView<const float> in = swap ? d : x;
  const MatrixView<const float> out = swap ? x : d;
  requireReady(in.rows);
  if (!gate.data && in.rows > 0 && checksUpdate(context)) {
    updateAtOnce(context, in, out, settings_.fastLr(lr), firstSample);
    return;
  }
  project(context, in, out, firstSample);
  const MatrixView<float> g = rowMajor(g_.data(), in.rows, settings_.rank);
  const MatrixView<float> e = rowMajor(e_.data(), in.rows, settings_.rank);
  if (gate.data) {
    forEach(context, g.size(), GateMultiplier{gate, g.data});
    forEach(context, e.size(), GateMultiplier{gate, e.data});
  }
  const float eta = settings_.fastLr(lr);
  updaterA_.update(context, a_, g, out, eta, firstSample);
  updaterB_.update(context, b_, in, e, eta, firstSample);
}

bool LRTTAdapter::checksUpdate(const Context &context) const {
  return settings_.params.projection == Projection::Analog && settings_.rank <= kFewLines &&
         updaterA_.sendsTrains() && projectionA_.joinable(context) &&
         projectionB_.joinable(context);
}

// On a GPU: projections, snapshots and the scales of both arrays' trains in one launch, all trains
// in another, and the pulses of both arrays in a third.
void LRTTAdapter::updateAtOnce(const Context &context,
                               MatrixView<const float> in,
                               MatrixView<const float> out,
                               float eta, uint64_t firstSample) {
  const MatrixView<float> g = scratch(context, g_, in.rows, settings_.rank);
  const MatrixView<float> e = scratch(context, e_, in.rows, settings_.rank);
  const auto a = rowMajor<const float>(snapshotA_.data(), a_.rows(), a_.cols());
  const auto b = rowMajor<const float>(snapshotB_.data(), b_.rows(), b_.cols());
  AdapterProjection p{};
  if (!snapshotTaken_) {
    p.copies[0] = {a_.weights().data, snapshotA_.data(), a_.size()};
    p.copies[1] = {b_.weights().data, snapshotB_.data(), b_.size()};
  }
  p.g = projectionB_.join(context, snapshotTaken_ ? b : b_.weights(), in, g, firstSample);
  p.e = projectionA_.join(context, (snapshotTaken_ ? a : a_.weights()).transposed(), out, e,
                          firstSample);
  p.a = updaterA_.start(context, a_, g, out, eta, firstSample);
  p.b = updaterB_.start(context, b_, in, e, eta, firstSample);
  cudaProject(context, p);
  snapshotTaken_ = true;
  TrainSide sides[kMostSides];
  const int count = updaterA_.trainSides(context, g, out, eta, sides);
  cudaDrawTrains(context, sides, count + updaterB_.trainSides(context, in, e, eta, sides + count));
  const ArrayPulses both[] = {{&a_, &updaterA_.words()}, {&b_, &updaterB_.words()}};
  PulsedDevice::applyPulsesToEach(context, both, 2);
}

void LRTTAdapter::endMiniBatch(const Context &context, uint64_t event) {
  a_.relax(context, event);
  b_.relax(context, event);
  snapshotTaken_ = false;
  keptStale_ = false;
  keptG_.rows = keptG_.used = 0;
  keptE_.rows = keptE_.used = 0;
}

void LRTTAdapter::arraysReplaced() {
  snapshotTaken_ = false;
  keptStale_ = keptStale_ || keptG_.rows > 0 || keptE_.rows > 0;
}

void LRTTAdapter::drawB(const Context &context, MatrixView<float> out) {
  switch (settings_.params.reinit) {
    case Reinit::Orthogonal:
      drawOrthogonalRows(context, reinitKey_, reinits_, settings_.rowNorm, out);
      break;
    case Reinit::Svd:
      scaleRows(context, rowMajor<const float>(reinitVectors_.data(), b_.rows(), b_.cols()),
                settings_.rowNorm, out);
      break;
    default:
      drawNormalRows(context, reinitKey_, reinits_, settings_.deviation, out);
  }
}

void LRTTAdapter::write(const Context &context, PulsedDevice &array,
                        MatrixView<const float> target) {
  if (settings_.params.reinit_write == ReinitWrite::Pulsed) {
    programByPulses(context, array, target, writes_++);
  } else {
    array.setWeights(context, target, kWriteEvents + writes_++);
  }
}

void LRTTAdapter::reinit(const Context &context) {
  const Reinit kind = settings_.params.reinit;
  arraysReplaced();
  if (kind == Reinit::None) return;
  write(context, a_, zeros());
  if (kind != Reinit::KeepB) {
    const MatrixView<float> target = scratch(context, newB_, b_.rows(), b_.cols());
    if (kind == Reinit::Decay) {
      forEach(context, b_.size(),
              ScaledCopier{b_.weights(), settings_.params.reinit_decay, target.data});
    } else {
      drawB(context, target);
    }
    write(context, b_, target);
  }
  ++reinits_;
}

// A matrix of A's shape.
MatrixView<const float> LRTTAdapter::zeros() const {
  return {zero_.data(), a_.rows(), a_.cols(), 0, 0};
}

void LRTTAdapter::clear(const Context &context) { setA(context, zeros()); }

void LRTTAdapter::setA(const Context &context, MatrixView<const float> weights) {
  a_.setWeights(context, weights, kWriteEvents + writes_);
  ++writes_;
  arraysReplaced();
}

void LRTTAdapter::setB(const Context &context, MatrixView<const float> weights) {
  b_.setWeights(context, weights, kWriteEvents + writes_);
  ++writes_;
  arraysReplaced();
}

void LRTTAdapter::setReinitVectors(const Context &context, MatrixView<const float> vectors) {
  RPU_CHECK(ConfigError, settings_.params.reinit == Reinit::Svd,
            "re-init vectors were handed in, but lrtt.reinit is '",
            EnumNames<Reinit>::kNames[static_cast<int>(settings_.params.reinit)],
            "'; set it to 'svd'");
  RPU_CHECK(InputError, vectors.rows == b_.rows() && vectors.cols == b_.cols(),
            "re-init vectors have shape [", vectors.rows, ", ", vectors.cols,
            "]; lrtt.rank and the tile ask for [", b_.rows(), ", ", b_.cols(), "]");
  copyMatrix(context, vectors, rowMajor(reinitVectors_.data(), b_.rows(), b_.cols()));
  reinitVectorsSet_ = true;
  const MatrixView<float> target = scratch(context, newB_, b_.rows(), b_.cols());
  drawB(context, target);
  write(context, b_, target);
  arraysReplaced();
}

size_t LRTTAdapter::memoryBytes() const {
  return a_.memoryBytes() + b_.memoryBytes() + snapshotA_.bytes() + snapshotB_.bytes() +
         reinitVectors_.bytes();
}

void LRTTAdapter::saveTo(const Context &context, State &state, const std::string &prefix) const {
  const std::vector<int64_t> shapeA{a_.rows(), a_.cols()};
  const std::vector<int64_t> shapeB{b_.rows(), b_.cols()};
  a_.saveTo(context, state, prefix + "fast_a/");
  b_.saveTo(context, state, prefix + "fast_b/");
  ioA_.forward().saveTo(context, state, prefix + "fast_a/forward/");
  ioA_.backward().saveTo(context, state, prefix + "fast_a/backward/");
  ioB_.forward().saveTo(context, state, prefix + "fast_b/forward/");
  ioB_.backward().saveTo(context, state, prefix + "fast_b/backward/");
  projectionA_.saveTo(context, state, prefix + "fast_a/projection/");
  projectionB_.saveTo(context, state, prefix + "fast_b/projection/");
  state.put(context, prefix + "fast_a/snapshot", Tensor::Type::F32, shapeA, snapshotA_);
  state.put(context, prefix + "fast_b/snapshot", Tensor::Type::F32, shapeB, snapshotB_);
  if (!reinitVectors_.empty()) {
    state.put(context, prefix + "reinit_vectors", Tensor::Type::F32, shapeB, reinitVectors_);
  }
  state.values[prefix + "snapshot_taken"] = Value(snapshotTaken_ ? 1 : 0);
  state.values[prefix + "reinit_vectors_set"] = Value(reinitVectorsSet_ ? 1 : 0);
  state.values[prefix + "reinits"] = Value(reinits_);
  state.values[prefix + "writes"] = Value(writes_);
}

void LRTTAdapter::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  const std::vector<int64_t> shapeA{a_.rows(), a_.cols()};
  const std::vector<int64_t> shapeB{b_.rows(), b_.cols()};
  a_.loadFrom(context, state, prefix + "fast_a/");
  b_.loadFrom(context, state, prefix + "fast_b/");
  ioA_.forward().loadFrom(context, state, prefix + "fast_a/forward/");
  ioA_.backward().loadFrom(context, state, prefix + "fast_a/backward/");
  ioB_.forward().loadFrom(context, state, prefix + "fast_b/forward/");
  ioB_.backward().loadFrom(context, state, prefix + "fast_b/backward/");
  projectionA_.loadFrom(context, state, prefix + "fast_a/projection/");
  projectionB_.loadFrom(context, state, prefix + "fast_b/projection/");
  state.take(context, prefix + "fast_a/snapshot", Tensor::Type::F32, shapeA, snapshotA_);
  state.take(context, prefix + "fast_b/snapshot", Tensor::Type::F32, shapeB, snapshotB_);
  if (!reinitVectors_.empty()) {
    state.take(context, prefix + "reinit_vectors", Tensor::Type::F32, shapeB, reinitVectors_);
  }
  snapshotTaken_ = state.counter(prefix + "snapshot_taken") != 0;
  reinitVectorsSet_ = state.counter(prefix + "reinit_vectors_set") != 0;
  reinits_ = state.counter(prefix + "reinits");
  writes_ = state.counter(prefix + "writes");
  keptG_.rows = keptG_.used = 0;
  keptE_.rows = keptE_.used = 0;
  keptStale_ = false;
}

}  // namespace RPU
