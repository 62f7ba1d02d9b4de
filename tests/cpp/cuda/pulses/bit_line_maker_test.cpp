#include <gtest/gtest.h>
#include <vector>

#include "array/pulsed_device.h"
#include "array/pulsed_weight_updater.h"
#include "cuda/cuda_matrix_test_util.h"
#include "cuda/cuda_test_util.h"

// Raw inputs that a BitLineMaker keeps of mini-batches on a GPU.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

std::vector<float> onHost(const Context &context, MatrixView<const float> gapless) {
  EXPECT_TRUE(gapless.isContiguous());
  std::vector<float> host(static_cast<size_t>(gapless.size()));
  detail::copyToHost(context, host.data(), gapless.data, host.size() * sizeof(float));
  return host;
}

/// Weights of an array after two updates by x and d, which lie in these layouts; with `expose`,
/// what the maker kept of them is checked.
std::vector<float> weightsAfter(const Context &context, PulseType type, const Batch &batch,
                                Layout xLayout, Layout dLayout, bool expose) {
  const DeviceLaidOut<float> x(context, LaidOut<float>(batch.xView(), xLayout));
  const DeviceLaidOut<float> d(context, LaidOut<float>(batch.dView(), dLayout));
  PulsedDevice array(context, makeParams("SoftBounds"), batch.dSize, batch.xSize, kDeviceKey);
  PulsedWeightUpdater updater(typed(type), kPulseTrainKey);
  BitLineMaker &maker = updater.bitLineMaker();
  maker.setExposeRawInputs(expose);
  const int64_t half = batch.samples / 2;
  updater.update(context, array, x.view().block(0, 0, half, batch.xSize),
                 d.view().block(0, 0, half, batch.dSize), 0.1f, 0);
  updater.update(context, array, x.view(), d.view(), 0.1f, static_cast<uint64_t>(half));
  if (expose) {
    EXPECT_EQ(maker.getXData().rows, batch.samples);
    EXPECT_EQ(maker.getDData().cols, batch.dSize);
    EXPECT_TRUE(sameBits(onHost(context, maker.getXData()), batch.x));
    EXPECT_TRUE(sameBits(onHost(context, maker.getDData()), batch.d));
  } else {
    EXPECT_EQ(maker.getXData().size(), 0);
  }
  return onHost(context, array.weights());
}

TEST(CudaBitLineMaker, AnUpdateKeepsItsRawInputsWhateverTheirLayout) {
  PULSORA_REQUIRE_GPU();
  const Batch batch = randomBatch(9, 70, 33, 5);
  for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic,
                               PulseType::MeanCount, PulseType::DeterministicImplicit}) {
    const std::vector<float> expected =
        weightsAfter(cpuContext(), type, batch, Layout::RowMajor, Layout::RowMajor, false);
    for (const Layout x : kLayouts) {
      for (const Layout d : kLayouts) {
        for (const bool expose : {false, true}) {
          SCOPED_TRACE(message("type ", static_cast<int>(type), ", layouts ", static_cast<int>(x),
                               static_cast<int>(d), ", expose ", expose));
          ASSERT_TRUE(sameBits(expected, weightsAfter(gpuContext(), type, batch, x, d, expose)));
        }
      }
    }
  }
}

// Scales are found by a block for each sample, by a warp, or by a thread.
TEST(CudaBitLineMaker, Property36_ManySamplesHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  struct Size {
    int64_t samples, inputs, outputs;
  };
  for (const Size &size : {Size{900, 70, 33}, Size{2500, 370, 233}, Size{8200, 30, 13}}) {
    const Batch batch = randomBatch(size.samples, size.inputs, size.outputs, 7);
    const auto weights = [&](const Context &context, Layout layout) {
      return weightsAfter(context, PulseType::StochasticCompressed, batch, layout, layout, false);
    };
    const std::vector<float> expected = weights(cpuContext(), Layout::RowMajor);
    for (const Layout layout : {Layout::RowMajor, Layout::CutOut})
      EXPECT_TRUE(sameBits(expected, weights(gpuContext(), layout))) << size.samples;
  }
}

TEST(CudaBitLineMaker, AnEmptyMiniBatchKeepsNothing) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  const Batch batch = randomBatch(4, 5, 3, 5);
  const DeviceBatch on(gpu, batch);
  BitLineMaker maker;
  maker.setExposeRawInputs(true);
  maker.makeWords(gpu, on.x.view(), on.d.view(), 0.1f, 0.001f, UpdateParameters{}, kPulseTrainKey,
                  0);
  EXPECT_EQ(maker.getXData().rows, 4);
  maker.makeWords(gpu, on.x.view().block(0, 0, 0, 5), on.d.view().block(0, 0, 0, 3), 0.1f, 0.001f,
                  UpdateParameters{}, kPulseTrainKey, 4);
  EXPECT_EQ(maker.getXData().rows, 0);
  EXPECT_EQ(maker.getDData().rows, 0);
}

}  // namespace
}  // namespace pulsora
