#include "parallel_pair.h"

#include <pulsora/for_each.h>
#include <pulsora/linear_algebra.h>

namespace pulsora {
namespace {

class ParallelPair final : public AnalogDevice {
 public:
  ParallelPair(const ParallelPairParams &p, const CompoundSite &site)
      : share_(p.share),
        first_(site.context, p.first, site.dSize, site.xSize, site.periphery, site.keys, 0),
        second_(site.context, p.second, site.dSize, site.xSize, site.periphery, site.keys, 1) {}

  int64_t dSize() const override { return first_.rows(); }
  int64_t xSize() const override { return first_.cols(); }
  std::vector<NamedArray> arrays() override { return {{"first", &first_}, {"second", &second_}}; }

  void forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
               const Counters &c) override {
    read(context, Pass::Forward, x, y, c.forwardSamples);
  }
  void backward(const Context &context, MatrixView<const float> d, MatrixView<float> dx,
                const Counters &c) override {
    read(context, Pass::Backward, d, dx, c.backwardSamples);
  }
  /// Each array follows the whole gradient, and so does their weighted sum.
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override {
    reserveUpdate(context, x.rows, lr);
    first_.update(context, x, d, lr, c.updateSamples);
    second_.update(context, x, d, lr, c.updateSamples);
  }

  /// Reserves memory for both arrays, so that an update that finds no memory changes neither.
  void reserveUpdate(const Context &context, int64_t samples, float lr) override {
    first_.updater().reserve(context, first_.cells(), samples, lr);
    second_.updater().reserve(context, second_.cells(), samples, lr);
  }

  void getWeights(const Context &context, MatrixView<float> out) const override {
    copy(context, first_.weights(), out);
    forEach(context, out.size(), Blend{share_, second_.weights().data, out});
  }
  /// Both arrays take the weights, so that their weighted sum is the weights for any share.
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override {
    first_.cells().setWeights(context, weights, c.events);
    second_.cells().setWeights(context, weights, c.events);
  }

 private:
  void read(const Context &context, Pass pass, MatrixView<const float> in, MatrixView<float> out,
            uint64_t firstSample) {
    other_.reserve(context, out.size());
    const MatrixView<float> other = rowMajor(other_.data(), out.rows, out.cols);
    first_.run(context, pass, in, out, firstSample);
    second_.run(context, pass, in, other, firstSample);
    forEach(context, out.size(), Blend{share_, other.data, out});
  }
  float share_;
  Crossbar first_;
  Crossbar second_;
  Buffer<float> other_;
};

}  // namespace

std::unique_ptr<AnalogDevice> ParallelPairParams::make(const CompoundSite &site) const {
  return std::make_unique<ParallelPair>(*this, site);
}

}  // namespace pulsora
