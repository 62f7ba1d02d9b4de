#include "lrtt/adapter.h"

#include <algorithm>

#include "array/cell_functors.h"
#include "array/events.h"
#include "core/backend.h"
#include "linalg/initialise.h"
#include "linalg/math_util.h"
#include "linalg/packing.h"
#include "lrtt/functors.h"
#include "lrtt/projection.h"
#include "periphery/additive_functors.h"
#include "periphery/gpu_read.h"

namespace pulsora {
namespace {

// A scratch matrix, gapless.
MatrixView<float> scratch(const Context &context, ScratchBuffer<float> &buffer, int64_t rows,
                          int64_t cols) {
  buffer.reserve(context, rows * cols);
  return rowMajor(buffer.data(), rows, cols);
}

// TilePeriphery of A and B. With swap_xd, an array's forward direction serves the tile's backward.
TilePeriphery aroundFast(const LRTTSettings &s, const TilePeriphery &tile) {
  const bool swap = s.params.swap_xd;
  return {swap ? tile.backward : tile.forward, swap ? tile.forward : tile.backward, s.fastUpdate};
}

}  // namespace

LRTTAdapter::LRTTAdapter(const Context &context, const LRTTSettings &s, const TilePeriphery &tile,
                         const TileKeys &keys)
    : settings_(s),
      a_(context, s.params.fast, s.outputs, s.rank, aroundFast(s, tile), keys, kSlotA,
         s.readLimitsOfFactors()),
      b_(context, s.params.fast, s.rank, s.inputs, aroundFast(s, tile), keys, kSlotB,
         s.readLimitsOfFactors()),
      projectionA_(context, a_.read(Pass::Backward).parameters(), Pass::Backward, s.outputs, s.rank,
                   keys.ofRead(kSlotA, Role::Projection), s.readLimitsOfFactors().reversed()),
      projectionB_(context, b_.read(Pass::Forward).parameters(), Pass::Forward, s.inputs, s.rank,
                   keys.ofRead(kSlotB, Role::Projection), s.readLimitsOfFactors()),
      reinitKey_(keys.of(kSlotB, Role::Start)),
      chopperKey_(keys.of(kSlotA, Role::Start)),
      snapshotA_(Buffer<float>::zeros(context, a_.cells().size())),
      snapshotB_(Buffer<float>::zeros(context, b_.cells().size())),
      zero_(Buffer<float>::zeros(context, 1)),
      accumulated_(context, s.params.ab_update == FactorUpdate::Accumulated, a_.cells(),
                   b_.cells()) {
  if (s.params.reference == FastReference::SymmetricPoint) {
    const int64_t pairs = s.params.reference_pulses;
    a_.cells().addReferences(context, pairs, keys.of(kSlotA, Role::Reference));
    b_.cells().addReferences(context, pairs, keys.of(kSlotB, Role::Reference));
  }
  if (s.params.chopper == Chopper::Reinit) {
    a_.cells().addColumnSigns(context);
    signs_ = Buffer<float>::zeros(context, s.rank);
  }
  if (reinitScheme(s.params.reinit).needsVectors) {
    reinitVectors_ = Buffer<float>::zeros(context, b_.cells().size());
    return;  // setReinitVectors() will write B
  }
  startB(context);
  reinits_ = 1;
}

AdapterBounds LRTTAdapter::boundReads(const Context &context) {
  const AdapterBounds bounds{a_.boundReads(context), b_.boundReads(context)};
  projectionA_.setWeightBound(bounds.a);
  projectionB_.setWeightBound(bounds.b);
  return bounds;
}

Pass LRTTAdapter::own(Pass pass) const {
  return (pass == Pass::Forward) != settings_.params.swap_xd ? Pass::Forward : Pass::Backward;
}

ArrayRead LRTTAdapter::first(Pass ownPass) {
  Crossbar &array = ownPass == Pass::Forward ? b_ : a_;
  return {array.read(ownPass), array.weights(ownPass)};
}

ArrayRead LRTTAdapter::second(Pass ownPass) {
  Crossbar &array = ownPass == Pass::Forward ? a_ : b_;
  return {array.read(ownPass), array.weights(ownPass)};
}

void LRTTAdapter::readWith(const Context &context, Pass pass, const ArrayRead &base,
                           MatrixView<const float> in, MatrixView<const float> gate,
                           MatrixView<float> ungated, MatrixView<float> out, uint64_t firstSample) {
  const MatrixView<float> inner = scratch(context, inner_, in.rows, settings_.rank);
  const bool reuses =
      settings_.params.projection == Projection::Reuse && !isEvaluation(firstSample);
  if (reuses) kept(own(pass)).values.reserve(context, inner.size());
  const ChainedRead chain{first(own(pass)), second(own(pass)), inner, gate,
                          ungated,          settings_.alpha};
  readTogether(context, base, &chain, 1, in, out, firstSample, product_);
  if (reuses) keep(context, kept(own(pass)), gate.data ? ungated : inner);
}

void LRTTAdapter::addExactProduct(const Context &context, Pass pass, MatrixView<const float> in,
                                  MatrixView<float> out) {
  const MatrixView<float> inner = scratch(context, inner_, in.rows, settings_.rank);
  gemm(context, 1.0f, in, first(own(pass)).weights.transposed(), 0.0f, inner);
  gemm(context, settings_.alpha, inner, second(own(pass)).weights.transposed(), 1.0f, out);
}

void LRTTAdapter::keep(const Context &context, KeptRead &kept, MatrixView<const float> read) {
  kept.rows = read.rows;
  kept.used = 0;
  keptStale_ = false;
  copy(context, read, rowMajor(kept.values.data(), read.rows, read.cols));
}

void LRTTAdapter::takeSnapshot(const Context &context) {
  if (snapshotTaken_) return;
  copy(context, a_.weights(), rowMajor(snapshotA_.data(), a_.rows(), a_.cols()));
  copy(context, b_.weights(), rowMajor(snapshotB_.data(), b_.rows(), b_.cols()));
  snapshotTaken_ = true;
}

void LRTTAdapter::project(const Context &context, MatrixView<const float> in,
                          MatrixView<const float> out, uint64_t firstSample) {
  const MatrixView<float> g = scratch(context, g_, in.rows, settings_.rank);
  const MatrixView<float> e = scratch(context, e_, in.rows, settings_.rank);
  const Projection projection = settings_.params.projection;
  // After a re-init within the mini-batch, earlier reads belong to the previous A and B.
  if (projection == Projection::Reuse && !keptStale_) {
    takeKept(context, keptG_, g);
    takeKept(context, keptE_, e);
    return;
  }
  if (projection == Projection::Reuse) projected_ += static_cast<uint64_t>(in.rows);
  takeSnapshot(context);
  if (projection == Projection::Exact) {
    gemm(context, 1.0f, in, snapshotB().transposed(), 0.0f, g);
    gemm(context, 1.0f, out, snapshotA(), 0.0f, e);
  } else {
    projectionB_.run(context, snapshotB(), in, g, firstSample);
    projectionA_.run(context, snapshotA().transposed(), out, e, firstSample);
  }
}

void LRTTAdapter::takeKept(const Context &context, KeptRead &kept, MatrixView<float> to) {
  unpackRows(context, rowMajor<const float>(kept.values.data(), kept.rows, to.cols), to, kept.used);
  kept.used += to.rows;
}

void LRTTAdapter::requireRoom(uint64_t writes, uint64_t reinits, uint64_t flushes) const {
  const bool pulsed = settings_.params.reinit_write == ReinitWrite::Pulsed;
  pulsora::requireRoom(writes_, writes, pulsed ? PulseWriter::mostWrites(a()) : kMostCounted,
                       "writes of A and B");
  pulsora::requireRoom(reinits_, reinits, kMostCounted, "re-inits");
  accumulated_.requireRoom(flushes);
}

void LRTTAdapter::requireReady(int64_t samples) const {
  PULSORA_CHECK(
      ConfigError, !reinitScheme(settings_.params.reinit).needsVectors || reinitVectorsSet_,
      "reinit is 'svd', but no vectors were handed in; before the first update, give each tile "
      "its vectors [K, inputs] by tile.adapter.set_reinit_vectors(vectors), in C++ "
      "tile.adapter().setReinitVectors(vectors)");
  if (settings_.params.projection != Projection::Reuse || keptStale_) return;
  const int64_t forward = keptG_.rows - keptG_.used;
  const int64_t backward = keptE_.rows - keptE_.used;
  PULSORA_CHECK(
      ConfigError, forward >= samples && backward >= samples,
      "lrtt.projection is 'reuse', but for an update of ", samples, " samples there are reads of ",
      forward, " forward and ", backward,
      " backward samples of this mini-batch; run forward and backward before the update, or set "
      "projection to 'analog' or 'exact'");
}

void LRTTAdapter::update(const Context &context, MatrixView<const float> x,
                         MatrixView<const float> d, MatrixView<const float> gate, float lr,
                         uint64_t firstSample) {
  const bool swap = settings_.params.swap_xd;
  const MatrixView<const float> in = swap ? d : x;
  const MatrixView<const float> out = swap ? x : d;
  requireReady(in.rows);
  reserveUpdate(context, in.rows, lr);
  const float lrA = lr * settings_.lrOfA;
  const float lrB = lr * settings_.lrOfB;
  if (!gate.data && in.rows > 0 && updatesInFewLaunches(context)) {
    updateInFewLaunches(context, in, out, lrA, lrB, firstSample);
    return;
  }
  project(context, in, out, firstSample);
  const MatrixView<float> g = rowMajor(g_.data(), in.rows, settings_.rank);
  const MatrixView<float> e = rowMajor(e_.data(), in.rows, settings_.rank);
  if (gate.data) {
    forEach(context, g.size(), GateMultiplier{gate, g.data});
    forEach(context, e.size(), GateMultiplier{gate, e.data});
  }
  if (limitsSteps())
    stepLimit_.apply(context, settings_.response, settings_.params.ab_step_limit, in, out, g, e);
  if (!signs_.empty())
    forEach(context, g.size(), ColumnScaler{a().columnSigns(), settings_.rank, g.data});
  if (accumulated_.used()) {
    accumulated_.accumulateA(context, g, out, lrA);
    accumulated_.accumulateB(context, in, e, lrB);
    return;
  }
  a_.update(context, g, out, lrA, firstSample);
  b_.update(context, in, e, lrB, firstSample);
}

void LRTTAdapter::flush(const Context &context) {
  accumulated_.flush(context, a_.cells(), b_.cells(), settings_.fastUpdate.desired_bl);
}

void LRTTAdapter::reserveUpdate(const Context &context, int64_t samples, float lr) {
  g_.reserve(context, samples * settings_.rank);
  e_.reserve(context, samples * settings_.rank);
  if (settings_.params.projection != Projection::Exact) {  // 'reuse' projects after a re-init
    projectionB_.reserve(context, b_.weights(), samples);
    projectionA_.reserve(context, a_.weights(Pass::Backward), samples);
  }
  if (limitsSteps()) stepLimit_.reserve(context, samples);
  if (accumulated_.used()) {
    accumulated_.reserve(context, samples, std::max(settings_.outputs, settings_.rank));
    reserveFlush(context);
    return;
  }
  a_.updater().reserve(context, a_.cells(), samples, lr * settings_.lrOfA);
  b_.updater().reserve(context, b_.cells(), samples, lr * settings_.lrOfB);
}

bool LRTTAdapter::updatesInFewLaunches(const Context &context) const {
  return !accumulated_.used() && signs_.empty() && !limitsSteps() &&
         settings_.params.projection == Projection::Analog && settings_.rank <= kFewLines &&
         a_.updater().sendsTrains() && projectionA_.canBeBatchedWith(context, projectionB_);
}

// On a GPU: one launch for projections, snapshots and the scales of both arrays' pulse trains, a
// second for all pulse trains, and a third for the pulses of both arrays.
void LRTTAdapter::updateInFewLaunches(const Context &context, MatrixView<const float> in,
                                      MatrixView<const float> out, float lrA, float lrB,
                                      uint64_t firstSample) {
  const MatrixView<float> g = scratch(context, g_, in.rows, settings_.rank);
  const MatrixView<float> e = scratch(context, e_, in.rows, settings_.rank);
  AdapterProjection p{};
  if (!snapshotTaken_) {
    p.copies[0] = {a_.weights().data, snapshotA_.data(), a_.cells().size()};
    p.copies[1] = {b_.weights().data, snapshotB_.data(), b_.cells().size()};
  }
  const auto a = snapshotTaken_ ? snapshotA() : a_.weights();
  const auto b = snapshotTaken_ ? snapshotB() : b_.weights();
  p.g = projectionB_.plan(context, b, in, g, firstSample);
  p.e = projectionA_.plan(context, a.transposed(), out, e, firstSample);
  p.a = a_.updater().start(context, a_.cells(), g, out, lrA, firstSample);
  p.b = b_.updater().start(context, b_.cells(), in, e, lrB, firstSample);
  cudaProject(context, p);
  snapshotTaken_ = true;
  PulseTrainSide sides[kMostSides];
  const int count = a_.updater().trainSides(context, g, out, lrA, sides);
  cudaDrawPulseTrains(context, sides,
                      count + b_.updater().trainSides(context, in, e, lrB, sides + count));
  const ArrayPulses both[] = {{&a_.cells(), &a_.updater().words()},
                              {&b_.cells(), &b_.updater().words()}};
  PulsedDevice::applyPulsesToEach(context, both, 2);
}

void LRTTAdapter::endMiniBatch(const Context &context, uint64_t event) {
  flush(context);
  a_.cells().relax(context, event);
  b_.cells().relax(context, event);
  snapshotTaken_ = false;
  forgetReads();
}

void LRTTAdapter::forgetReads() {
  keptStale_ = false;
  keptG_.rows = keptG_.used = 0;
  keptE_.rows = keptE_.used = 0;
}

void LRTTAdapter::meetBounds(const Context &context) {
  a_.cells().meetBounds(context);
  b_.cells().meetBounds(context);
}

void LRTTAdapter::arraysReplaced() {
  snapshotTaken_ = false;
  keptStale_ = keptStale_ || keptG_.rows > 0 || keptE_.rows > 0;
}

size_t LRTTAdapter::memoryBytes() const {
  return a().memoryBytes() + b().memoryBytes() + snapshotA_.heldBytes() + snapshotB_.heldBytes() +
         reinitVectors_.heldBytes() + accumulated_.memoryBytes();
}

void LRTTAdapter::saveTo(const Context &context, State &state, const std::string &prefix) const {
  const std::vector<int64_t> shapeA{a_.rows(), a_.cols()};
  const std::vector<int64_t> shapeB{b_.rows(), b_.cols()};
  a_.saveTo(context, state, prefix + "fast_a/");
  b_.saveTo(context, state, prefix + "fast_b/");
  projectionA_.saveTo(context, state, prefix + "fast_a/projection/");
  projectionB_.saveTo(context, state, prefix + "fast_b/projection/");
  state.put(context, prefix + "fast_a/snapshot", Tensor::Type::F32, shapeA, snapshotA_);
  state.put(context, prefix + "fast_b/snapshot", Tensor::Type::F32, shapeB, snapshotB_);
  if (!reinitVectors_.empty()) {
    state.put(context, prefix + "reinit_vectors", Tensor::Type::F32, shapeB, reinitVectors_);
  }
  accumulated_.saveTo(context, state, prefix);
  state.values[prefix + "snapshot_taken"] = Value(snapshotTaken_ ? 1 : 0);
  state.values[prefix + "reinit_vectors_set"] = Value(reinitVectorsSet_ ? 1 : 0);
  state.values[prefix + "reinits"] = Value(reinits_);
  state.values[prefix + "writes"] = Value(writes_);
  if (settings_.params.projection == Projection::Reuse)
    state.values[prefix + kProjected] = Value(projected_);
}

void LRTTAdapter::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  const std::vector<int64_t> shapeA{a_.rows(), a_.cols()};
  const std::vector<int64_t> shapeB{b_.rows(), b_.cols()};
  a_.loadFrom(context, state, prefix + "fast_a/");
  b_.loadFrom(context, state, prefix + "fast_b/");
  projectionA_.loadFrom(context, state, prefix + "fast_a/projection/");
  projectionB_.loadFrom(context, state, prefix + "fast_b/projection/");
  state.take(context, prefix + "fast_a/snapshot", Tensor::Type::F32, shapeA, snapshotA_);
  state.take(context, prefix + "fast_b/snapshot", Tensor::Type::F32, shapeB, snapshotB_);
  if (!reinitVectors_.empty()) {
    state.take(context, prefix + "reinit_vectors", Tensor::Type::F32, shapeB, reinitVectors_);
  }
  accumulated_.loadFrom(context, state, prefix);
  snapshotTaken_ = state.flag(prefix + "snapshot_taken");
  reinitVectorsSet_ = state.flag(prefix + "reinit_vectors_set");
  reinits_ = state.counter(prefix + "reinits", kMaxSample);
  writes_ = state.counter(prefix + "writes", kOwnWrites);
  projected_ = state.values.count(prefix + kProjected) ? state.counter(prefix + kProjected) : 0;
  forgetReads();
}

}  // namespace pulsora
