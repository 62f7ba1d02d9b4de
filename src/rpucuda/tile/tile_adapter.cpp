#include "tile/tile_adapter.h"

#include "tile/tile_impl.h"

namespace RPU {

int64_t TileAdapter::rank() const { return adapter_.rank(); }

void TileAdapter::forward(MatrixView<const float> x, MatrixView<const float> gate,
                          MatrixView<float> y, MatrixView<float> read) {
  requireShape(x, -1, tile_.device->xSize(), "x", "forward");
  requireShape(gate, x.rows, rank(), "gate", "forward");
  requireShape(y, x.rows, tile_.device->dSize(), "y", "forward");
  requireShape(read, x.rows, rank(), "read", "forward");
  requireFinite(tile_.context, x, "x");
  requireFinite(tile_.context, gate, "gate");
  adapter_.forwardGated(tile_.context, x, gate, y, read, tile_.counters);
  tile_.counters.forwardSamples += static_cast<uint64_t>(x.rows);
}

void TileAdapter::backward(MatrixView<const float> d, MatrixView<const float> gate,
                           MatrixView<const float> read, MatrixView<float> dx,
                           MatrixView<float> gateGradient) {
  requireShape(d, -1, tile_.device->dSize(), "d", "backward");
  requireShape(gate, d.rows, rank(), "gate", "backward");
  requireShape(read, d.rows, rank(), "read", "backward");
  requireShape(dx, d.rows, tile_.device->xSize(), "dx", "backward");
  requireShape(gateGradient, d.rows, rank(), "gate_gradient", "backward");
  requireFinite(tile_.context, d, "d");
  requireFinite(tile_.context, gate, "gate");
  requireFinite(tile_.context, read, "read");
  adapter_.backwardGated(tile_.context, d, gate, read, dx, gateGradient, tile_.counters);
  tile_.counters.backwardSamples += static_cast<uint64_t>(d.rows);
}

void TileAdapter::update(MatrixView<const float> x, MatrixView<const float> d,
                         MatrixView<const float> gate, float lr) {
  requireShape(x, -1, tile_.device->xSize(), "x", "update");
  requireShape(d, x.rows, tile_.device->dSize(), "d", "update");
  requireShape(gate, x.rows, rank(), "gate", "update");
  requireLearningRate(lr);
  requireFinite(tile_.context, x, d);
  requireFinite(tile_.context, gate, "gate");
  adapter_.updateGated(tile_.context, x, d, gate, lr, tile_.counters);
  tile_.counters.updateSamples += static_cast<uint64_t>(x.rows);
}

void TileAdapter::transfer() { adapter_.transfer(tile_.context); }

void TileAdapter::setReinitVectors(MatrixView<const float> vectors) {
  tile_.requireFiniteNow(vectors, "vectors");
  adapter_.setReinitVectors(tile_.context, vectors);
}

}  // namespace RPU
