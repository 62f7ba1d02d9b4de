#include "tile/tile_adapter.h"

#include "tile/tile_impl.h"

namespace pulsora {

int64_t TileAdapter::rank() const { return adapter_.rank(); }

float TileAdapter::tolerance() const { return adapter_.tolerance(); }

void TileAdapter::forward(MatrixView<const float> x, MatrixView<const float> gate,
                          MatrixView<float> y, MatrixView<float> read, const BatchPart &part) {
  requireShape(x, anyBatch(), {"x_size", tile_.device->xSize()}, "x", "forward");
  requireShape(gate, batchOf(x), {"rank", rank()}, "gate", "forward");
  requireShape(y, batchOf(x), {"d_size", tile_.device->dSize()}, "y", "forward");
  requireShape(read, batchOf(x), {"rank", rank()}, "read", "forward");
  requireFinite(tile_.context, x, "x");
  requireFinite(tile_.context, gate, "gate");
  tile_.readPart(Pass::Forward, x, "x", part,
                 [&](const Context &context, const Counters &counters, const RowRange &rows) {
                   adapter_.forwardGated(context, rows.of(x), rows.of(gate), rows.of(y),
                                         rows.of(read), counters);
                   tile_.compensation->apply(context, rows.of(y));
                   requireFiniteResult(context, rows.of(y), "y");
                 });
}

void TileAdapter::backward(MatrixView<const float> d, MatrixView<const float> gate,
                           MatrixView<const float> read, MatrixView<float> dx,
                           MatrixView<float> gateGradient, const BatchPart &part) {
  requireShape(d, anyBatch(), {"d_size", tile_.device->dSize()}, "d", "backward");
  requireShape(gate, batchOf(d), {"rank", rank()}, "gate", "backward");
  requireShape(read, batchOf(d), {"rank", rank()}, "read", "backward");
  requireShape(dx, batchOf(d), {"x_size", tile_.device->xSize()}, "dx", "backward");
  requireShape(gateGradient, batchOf(d), {"rank", rank()}, "gate_gradient", "backward");
  requireFinite(tile_.context, d, "d");
  requireFinite(tile_.context, gate, "gate");
  requireFinite(tile_.context, read, "read");
  tile_.readPart(Pass::Backward, d, "d", part,
                 [&](const Context &context, const Counters &counters, const RowRange &rows) {
                   adapter_.backwardGated(context, tile_.compensation->scaled(context, rows.of(d)),
                                          rows.of(gate), rows.of(read), rows.of(dx),
                                          rows.of(gateGradient), counters);
                   requireFiniteResult(context, rows.of(dx), "dx");
                 });
}

void TileAdapter::update(MatrixView<const float> x, MatrixView<const float> d,
                         MatrixView<const float> gate, float lr, BatchEnd end, const Pause &pause) {
  requireShape(x, anyBatch(), {"x_size", tile_.device->xSize()}, "x", "update");
  requireShape(d, batchOf(x), {"d_size", tile_.device->dSize()}, "d", "update");
  requireShape(gate, batchOf(x), {"rank", rank()}, "gate", "update");
  requireLearningRate(lr);
  requireStep(tile_.context, x, d, lr);
  requireFinite(tile_.context, gate, "gate");
  tile_.requireRoomForUpdate(x.rows);
  const auto checked = [](bool) {};
  tile_.updateInParts(
      x.rows, lr, pause, checked, [&](const Context &context, const RowRange &rows) {
        adapter_.updateGated(context, rows.of(x), rows.of(d), rows.of(gate), lr, tile_.counters);
      });
  if (end == BatchEnd::Now) tile_.endBatch(lr);
}

void TileAdapter::transfer() {
  const ScratchOperation operation(tile_.context);
  adapter_.transfer(tile_.context);
}

void TileAdapter::merge(MatrixView<const float> weights) {
  if (weights.data) {
    requireShape(weights, {"d_size", tile_.device->dSize()}, {"x_size", tile_.device->xSize()},
                 "weights", "merge");
    tile_.requireFiniteNow(weights, "weights");
  }
  const ScratchOperation operation(tile_.context);
  adapter_.merge(tile_.context, weights);
}

void TileAdapter::setReinitVectors(MatrixView<const float> vectors) {
  tile_.requireFiniteNow(vectors, "vectors");
  const ScratchOperation operation(tile_.context);
  adapter_.setReinitVectors(tile_.context, vectors);
}

}  // namespace pulsora
