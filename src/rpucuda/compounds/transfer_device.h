#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compounds/transfer_parameters.h"
#include "compounds/weighted_arrays.h"
#include "core/scratch.h"
#include "transfer/line_transfer.h"

namespace pulsora {

/// Name of array k of a chain.
inline std::string fastName(size_t k) { return "fast_" + std::to_string(k); }

/// The compound of TransferParams. Array k of the chain, 0 being the fastest, is fast_k; the last
/// one is `visible`.
class TransferDevice final : public AnalogDevice {
 public:
  TransferDevice(const TransferParams &params, const CompoundSite &site);

  int64_t dSize() const override { return visible().rows(); }
  int64_t xSize() const override { return visible().cols(); }
  std::vector<NamedArray> arrays() override;
  std::vector<AnalogRead *> reads() override;
  void boundReads(const Context &context) override;
  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override;
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override;
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override;
  void reserveUpdate(const Context &context, int64_t samples, float lr) override;
  void prepareUpdate(const Context &context, int64_t samples, int64_t longest, float lr) override;
  bool updateMayBeCut(const Context &context) const override;
  void postUpdate(const Context &context, float lr, const Counters &c) override;

  void getWeights(const Context &context, MatrixView<float> out) const override {
    weight_.write(context, out);
  }
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override;
  Value::Map explain(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr) const override;
  size_t memoryBytes() const override;
  void dropSums() override { weight_.drop(); }
  Value::Map statistics(const Context &context) const override;
  void countHardware(const Counters &c, HardwareCounts &counts) const override;
  void saveTo(const Context &context, State &state, const std::string &prefix) const override;
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override;

 private:
  Crossbar &visible() { return *chain_.back(); }
  const Crossbar &visible() const { return *chain_.back(); }
  float fastRate(float lr) const;
  float transferRate(size_t k, float lr) const;
  int64_t longestPiece() const;
  const float *rates(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                     float lr);
  /// Memory for the learning rates of samples: the samples' maxima [2, samples], the running maxima
  /// and the rates.
  struct RatesOfSamples {
    float *maxima, *running, *rates;
  };
  void findRates(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                 float lr, const RatesOfSamples &to) const;
  void updatePiece(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
                   float lr, uint64_t firstSample);
  void send(const Context &context, const DueVisits &due, const LinePulses &pulses, float lr,
            int64_t samples);
  void reserveEvent(const Context &context, size_t k);
  void transferNow(const Context &context, size_t k, float lr);
  void requireRoom(int64_t samples) const;
  void followSigns();

  TransferParams params_;
  std::vector<std::unique_ptr<Crossbar>> chain_;  // the fastest first
  std::vector<LineTransfer> transfers_;           // from array k onto k + 1
  WeightedArrays weight_;
  // auto_scale: see AutoRates, and the samples of the mini-batch and the one before.
  Buffer<float> maxima_;
  int64_t batchSamples_ = 0;
  int64_t lastBatch_ = 0;
  ScratchBuffer<float> xChopped_, dChopped_, sampleMaxima_, rates_;
};

}  // namespace pulsora
