#pragma once

#include <memory>

#include "compounds/analog_device.h"
#include "compounds/array_ids.h"
#include "array/pulsed_device.h"
#include "tile/tile_config.h"

namespace RPU {

/// A crossbar tile [dSize, xSize] with its periphery: the only class a caller needs. Inputs are
/// checked here, before anything changes. A Tile is not copied; save and load its state instead.
class Tile final {
 public:
  /// Validates `config`, then samples the cells. `tileId` distinguishes tiles that share a seed.
  Tile(int64_t dSize, int64_t xSize, const TileConfig &config, uint64_t seed, uint32_t tileId = 0,
       const Context &context = {});
  ~Tile();
  Tile(Tile &&) noexcept;
  Tile &operator=(Tile &&) noexcept;

  int64_t dSize() const;
  int64_t xSize() const;
  const TileConfig &config() const;
  const Context &context() const;
  /// Threads, instruction set and stream may change at any time; the backend may not (see to()).
  void setContext(const Context &context);

  /// y [m, dSize] = W x for x [m, xSize].
  void forward(MatrixView<const float> x, MatrixView<float> y);
  /// dx [m, xSize] = W^T d for d [m, dSize].
  void backward(MatrixView<const float> d, MatrixView<float> dx);
  /// W <- W - lr d^T x by pulses. InputError for wrong shapes or values that are not finite;
  /// ConfigError for a bad lr.
  void update(MatrixView<const float> x, MatrixView<const float> d, float lr);
  /// End of a mini-batch; call once after its update()s.
  void postUpdate(float lr);

  void getWeights(MatrixView<float> out) const;
  void setWeights(MatrixView<const float> weights);

  /// One of the pulsed arrays: Visible of a single array; Visible, and FastA [dSize, K] and FastB
  /// [K, xSize] if there is an adapter. ConfigError for an array that this tile lacks.
  const PulsedDevice &array(ArrayId which) const;
  void getArray(ArrayId which, MatrixView<float> out) const;
  /// Writes one array digitally, each cell within its bounds; the others stay.
  void setArray(ArrayId which, MatrixView<const float> weights);

  // Routed adapters and transfers out of turn; see LRTTTransferDevice. ConfigError for tiles of
  // another kind.
  void forwardGated(MatrixView<const float> x, MatrixView<const float> gate, MatrixView<float> y,
                    MatrixView<float> read);
  void backwardGated(MatrixView<const float> d, MatrixView<const float> gate,
                     MatrixView<const float> read, MatrixView<float> dx,
                     MatrixView<float> gateGradient);
  void updateGated(MatrixView<const float> x, MatrixView<const float> d,
                   MatrixView<const float> gate, float lr);
  void transfer();
  void setReinitVectors(MatrixView<const float> vectors);

  Value::Map explain(MatrixView<const float> x, MatrixView<const float> d, float lr) const;
  Value::Map statistics() const;

  uint64_t seed() const;
  uint32_t tileId() const;
  const Counters &counters() const;
  AnalogDevice &device();
  const AnalogDevice &device() const;

  /// Everything that is needed to go on to the bit; `loadState` refuses (StateError) what was not
  /// made by a tile of the same sizes, configuration and seed, and then changes nothing.
  State state() const;
  void loadState(const State &state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace RPU
