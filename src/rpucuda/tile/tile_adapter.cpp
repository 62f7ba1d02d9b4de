#include "tile/tile_adapter.h"

#include "tile/tile_impl.h"

namespace pulsora {

int64_t TileAdapter::rank() const { return adapter_.rank(); }

void TileAdapter::forward(MatrixView<const float> x, MatrixView<const float> gate,
                          MatrixView<float> y, MatrixView<float> read, const BatchPart &part) {
  requireShape(x, anyBatch(), {"x_size", tile_.device->xSize()}, "x", "forward");
  requireShape(gate, batchOf(x), {"rank", rank()}, "gate", "forward");
  requireShape(y, batchOf(x), {"d_size", tile_.device->dSize()}, "y", "forward");
  requireShape(read, batchOf(x), {"rank", rank()}, "read", "forward");
  requireFinite(tile_.context, x, "x");
  requireFinite(tile_.context, gate, "gate");
  tile_.readPart(Pass::Forward, x, "x", part,
                 [&](const Context &context, const Counters &counters) {
                   adapter_.forwardGated(context, x, gate, y, read, counters);
                   requireFiniteResult(context, y, "y");
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
                 [&](const Context &context, const Counters &counters) {
                   adapter_.backwardGated(context, d, gate, read, dx, gateGradient, counters);
                   requireFiniteResult(context, dx, "dx");
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
  tile_.updateInParts(x.rows, lr, pause, [&](int64_t start, int64_t count) {
    adapter_.updateGated(tile_.context, x.block(start, 0, count, x.cols),
                         d.block(start, 0, count, d.cols), gate.block(start, 0, count, gate.cols),
                         lr, tile_.counters);
  });
  if (end == BatchEnd::Now) tile_.endBatch(lr);
}

void TileAdapter::transfer() { adapter_.transfer(tile_.context); }

void TileAdapter::merge() { adapter_.merge(tile_.context); }

void TileAdapter::setReinitVectors(MatrixView<const float> vectors) {
  tile_.requireFiniteNow(vectors, "vectors");
  adapter_.setReinitVectors(tile_.context, vectors);
}

}  // namespace pulsora
