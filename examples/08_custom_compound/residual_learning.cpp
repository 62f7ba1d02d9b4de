#include "residual_learning.h"

#include <pulsora/additive_reads.h>
#include <pulsora/events.h>
#include <pulsora/for_each.h>
#include <pulsora/linear_algebra.h>

namespace pulsora {
namespace {

class ResidualLearning final : public AnalogDevice {
 public:
  ResidualLearning(const ResidualLearningParams &p, const CompoundSite &site)
      : params_(p),
        main_(site.context, p.main, site.dSize, site.xSize, site.periphery, site.keys, 0),
        residual_(site.context, p.residual, site.dSize, site.xSize, site.periphery, site.keys, 1),
        buffer_(Buffer<float>::zeros(site.context, site.dSize * site.xSize)) {}

  int64_t dSize() const override { return main_.rows(); }
  int64_t xSize() const override { return main_.cols(); }
  std::vector<NamedArray> arrays() override { return {{"main", &main_}, {"residual", &residual_}}; }

  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override {
    read(context, Pass::Forward, x, y, c.forwardSamples);
  }
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override {
    read(context, Pass::Backward, d, dx, c.backwardSamples);
  }

  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override {
    reserveUpdate(context, x.rows, lr);
    residual_.update(context, x, d, lr, c.updateSamples);
  }
  void reserveUpdate(const Context &context, int64_t samples, float lr) override {
    residual_.updater().reserve(context, residual_.cells(), samples, lr);
    pulses_.reserve(context, buffer_.size());
  }

  /// W_m follows the residual, column by column, and then all cells relax.
  void postUpdate(const Context &context, float, const Counters &c) override {
    const std::vector<NamedArray> all = arrays();  // takes memory, so before anything changes
    const auto columns = static_cast<uint64_t>(xSize());
    requireRoom(c.miniBatches, 1, kWritePulseSamples / columns, "mini-batches");
    pulses_.reserve(context, buffer_.size());
    forEach(context, buffer_.size(),
            ResidualPulses{residual_.weights(), params_.beta, main_.cells().granularity(),
                           static_cast<float>(params_.most_pulses), buffer_.data(), pulses_.data(),
                           context.nonfiniteFlag});
    LineVisits visits;
    visits.lines = visits.count = xSize();
    main_.cells().applyToLines(context,
                               {visits, true, false, pulses_.data(), c.miniBatches * columns});
    relax(context, all, c.miniBatches);
  }

  void getWeights(const Context &context, MatrixView<float> out) const override {
    copy(context, main_.weights(), out);
    addScaled(context, {residual_.weights().data, params_.gamma, out});
  }
  /// W_m takes the weights; residual and buffer begin at 0.
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override {
    const Buffer<float> zeros = Buffer<float>::zeros(context, buffer_.size());
    const auto none = rowMajor<const float>(zeros.data(), dSize(), xSize());
    main_.cells().setWeights(context, weights, c.events);
    residual_.cells().setWeights(context, none, c.events);
    copy(context, none, rowMajor(buffer_.data(), dSize(), xSize()));
  }

  void countHardware(const Counters &c, HardwareCounts &counts) const override {
    AnalogDevice::countHardware(c, counts);
    counts.addLines("main", c.miniBatches * static_cast<uint64_t>(xSize()));
    counts.addDigital(weightCells() * c.miniBatches, 8 * weightCells() * c.miniBatches);
  }

  void saveTo(const Context &context, State &state, const std::string &prefix) const override {
    AnalogDevice::saveTo(context, state, prefix);
    state.put(context, prefix + "buffer", Tensor::Type::F32, {xSize(), dSize()}, buffer_);
  }
  void loadFrom(const Context &context, const State &state, const std::string &prefix) override {
    AnalogDevice::loadFrom(context, state, prefix);
    state.take(context, prefix + "buffer", Tensor::Type::F32, {xSize(), dSize()}, buffer_);
  }

 private:
  void read(const Context &context, Pass pass, MatrixView<const float> in, MatrixView<float> out,
            uint64_t firstSample) {
    other_.reserve(context, out.size());
    const MatrixView<float> other = rowMajor(other_.data(), out.rows, out.cols);
    main_.run(context, pass, in, out, firstSample);
    residual_.run(context, pass, in, other, firstSample);
    addScaled(context, {other.data, params_.gamma, out});
  }

  ResidualLearningParams params_;
  Crossbar main_;
  Crossbar residual_;
  Buffer<float> buffer_;  // [xSize, dSize]: what W_m has not been given yet
  Buffer<float> pulses_;  // [xSize, dSize]
  Buffer<float> other_;
};

}  // namespace

std::unique_ptr<AnalogDevice> ResidualLearningParams::make(const CompoundSite &site) const {
  return std::make_unique<ResidualLearning>(*this, site);
}

}  // namespace pulsora
