#pragma once

#include "compounds/compound_model.h"
#include "core/scratch.h"

namespace pulsora {

/// Floating-point weights with the periphery of an analog tile.
struct IdealParams : CompoundBase {
  static constexpr const char *kKind = "ideal";
  static constexpr const char *kName = "IdealConfig";
  static constexpr const char *kDoc =
      "Floating-point weights, as a digital baseline. Reads are perfect unless told otherwise.";
  static constexpr bool kPulses = false;

  static TilePeriphery defaults() {
    TilePeriphery s;
    s.forward.is_perfect = s.backward.is_perfect = true;
    return s;
  }
  template <class Visitor>
  static void fields(Visitor &) {}
  CompoundFacts facts() const { return {"", /*pulsesWritten=*/false}; }
  std::unique_ptr<AnalogDevice> make(const CompoundSite &site) const;
};

/// Floating-point weights read through the periphery of an analog tile, as a baseline for it.
class IdealDevice final : public AnalogDevice {
 public:
  explicit IdealDevice(const CompoundSite &site);

  int64_t dSize() const override { return dSize_; }
  int64_t xSize() const override { return xSize_; }
  std::vector<NamedArray> arrays() override { return {}; }
  std::vector<AnalogRead *> reads() override { return {&reads_.forward(), &reads_.backward()}; }
  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override;
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override;
  /// W <- W - lr d^T x in floating point.
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void reserveUpdate(const Context &context, int64_t samples, float lr) override;
  void getWeights(const Context &context, MatrixView<float> out) const override;
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  size_t memoryBytes() const override { return weights_.heldBytes(); }
  Value::Map statistics(const Context &context) const override;
  void countHardware(const Counters &c, HardwareCounts &counts) const override;
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
  ScratchBuffer<float> scaled_;
  ForwardBackwardPass reads_;
};

}  // namespace pulsora
