#pragma once

#include "tile/tile.h"

namespace pulsora {

/// The low-rank adapter of a tile, where it has one: reads and updates in which a gate weighs the
/// adapter's K components, and transfers outside the schedule. Inputs are checked here, before
/// anything changes; ConfigError if the tile's settings do not allow a gate. Valid as long as the
/// tile.
class TileAdapter final {
 public:
  /// Number K of components.
  int64_t rank() const;
  /// The error of a cell that transfers by program and verify accept: the tolerance, or two
  /// deviations of a reading where these are more. 0 for other transfers.
  float tolerance() const;

  /// y [m, dSize] = W x + alpha A (gate .* (B x)) for x [m, xSize] and gate [m, K]; `read` [m, K]
  /// gets B x as it was read.
  void forward(MatrixView<const float> x, MatrixView<const float> gate, MatrixView<float> y,
               MatrixView<float> read, const BatchPart &part = {});
  /// dx [m, xSize] = W^T d + alpha B^T (gate .* (A^T d)), and the gate's gradient alpha (B x) .*
  /// (A^T d) [m, K].
  void backward(MatrixView<const float> d, MatrixView<const float> gate,
                MatrixView<const float> read, MatrixView<float> dx, MatrixView<float> gateGradient,
                const BatchPart &part = {});
  /// Tile::update() for samples whose forward was gated.
  void update(MatrixView<const float> x, MatrixView<const float> d, MatrixView<const float> gate,
              float lr, BatchEnd end = BatchEnd::Now, const Pause &pause = {});

  /// Transfers the adapter into W and re-initialises it now; the schedule does not change.
  void transfer();
  /// transfer() that leaves no part of the weight in the adapter: A is 0 afterwards. With `weights`
  /// [dSize, xSize], W gets these instead of what the adapter adds to it; ConfigError unless
  /// transfers are made by program and verify.
  void merge(MatrixView<const float> weights = {});
  /// Sets the directions [K, inputs] for lrtt.reinit = 'svd', and writes them to B at once.
  void setReinitVectors(MatrixView<const float> vectors);

 private:
  friend class Tile;
  TileAdapter(Tile::Impl &tile, GatedAdapter &adapter) : tile_(tile), adapter_(adapter) {}

  Tile::Impl &tile_;
  GatedAdapter &adapter_;
};

}  // namespace pulsora
