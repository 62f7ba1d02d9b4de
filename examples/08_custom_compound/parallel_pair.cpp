#include "parallel_pair.h"

#include "core/backend.h"
#include "core/math_util.h"
#include "periphery/joined_functors.h"

namespace RPU {
namespace {

class ParallelPair final : public AnalogDevice {
 public:
  ParallelPair(const ParallelPairParams &p, const CompoundSite &site)
      : first_(site.context, p.first, site.dSize, site.xSize, site.surroundings, site.keys, 0),
        second_(site.context, p.second, site.dSize, site.xSize, site.surroundings, site.keys, 1) {}

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
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, const Counters &c) override {
    first_.update(context, x, d, 0.5f * lr, c.updateSamples);
    second_.update(context, x, d, 0.5f * lr, c.updateSamples);
  }

  void getWeights(const Context &context, MatrixView<float> out) const override {
    copy(context, first_.weights(), out);
    forEach(context, out.size(), ScaledAdder{second_.weights().data, 1.0f, out});
  }
  /// Each array takes half.
  void setWeights(const Context &context, MatrixView<const float> weights,
                  const Counters &c) override {
    half_.reserve(context, weights.size());
    const MatrixView<float> half = rowMajor(half_.data(), weights.rows, weights.cols);
    copy(context, weights, half);
    scal(context, 0.5f, half);
    first_.cells().setWeights(context, half, c.events);
    second_.cells().setWeights(context, half, c.events);
  }

 private:
  void read(const Context &context, Pass pass, MatrixView<const float> in, MatrixView<float> out,
            uint64_t firstSample) {
    other_.reserve(context, out.size());
    const MatrixView<float> other = rowMajor(other_.data(), out.rows, out.cols);
    first_.run(context, pass, in, out, firstSample);
    second_.run(context, pass, in, other, firstSample);
    forEach(context, out.size(), ScaledAdder{other.data, 1.0f, out});
  }
  Crossbar first_;
  Crossbar second_;
  Buffer<float> half_, other_;
};

}  // namespace

std::unique_ptr<AnalogDevice> ParallelPairParams::make(const CompoundSite &site) const {
  return std::make_unique<ParallelPair>(*this, site);
}

}  // namespace RPU
