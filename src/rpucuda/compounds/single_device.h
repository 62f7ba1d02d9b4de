#pragma once

#include "compounds/analog_device.h"
#include "periphery/analog_read.h"
#include "array/pulsed_weight_updater.h"
#include "tile/tile_config.h"

namespace RPU {

/// One pulsed array that is the weight: full-rank analog SGD.
class SingleDevice final : public AnalogDevice {
 public:
  SingleDevice(const Context &context, const TileConfig &config, int64_t dSize, int64_t xSize,
               uint64_t seed, uint32_t tileId);

  int64_t dSize() const override { return array_.rows(); }
  int64_t xSize() const override { return array_.cols(); }
  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override;
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override;
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void postUpdate(const Context &context, float lr, const Counters &c) override;
  void getWeights(const Context &context, MatrixView<float> out) const override;
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;
  Value::Map statistics(const Context &context) const override;
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;

  PulsedDevice &array() { return array_; }
  const PulsedDevice &array() const { return array_; }

 private:
  PulsedDevice array_;
  ForwardBackwardPass pass_;
  PulsedWeightUpdater updater_;
};

/// Floating-point weights with the same periphery: what an analog tile is compared with.
class IdealDevice final : public AnalogDevice {
 public:
  IdealDevice(const Context &context, const TileConfig &config, int64_t dSize, int64_t xSize,
              uint64_t seed, uint32_t tileId);

  int64_t dSize() const override { return dSize_; }
  int64_t xSize() const override { return xSize_; }
  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override;
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override;
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void postUpdate(const Context &, float, const Counters &) override {}
  void getWeights(const Context &context, MatrixView<float> out) const override;
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;
  Value::Map statistics(const Context &context) const override;
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;

 private:
  MatrixView<float> weights() { return rowMajor(weights_.data(), dSize_, xSize_); }
  MatrixView<const float> weights() const {
    return rowMajor<const float>(weights_.data(), dSize_, xSize_);
  }

  int64_t dSize_;
  int64_t xSize_;
  Buffer<float> weights_;
  Buffer<float> scaled_;
  ForwardBackwardPass pass_;
};

}  // namespace RPU
