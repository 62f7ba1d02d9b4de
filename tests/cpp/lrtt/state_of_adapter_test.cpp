#include <gtest/gtest.h>

#include "lrtt/lrtt_test_util.h"
#include "tile/tile.h"

namespace pulsora {
namespace {

TileConfig noisyConfig() {
  TileConfig config;
  LRTTParams lrtt = plainLrtt();
  lrtt.rank = 3;
  lrtt.transfer_every = 25;
  lrtt.transfer_read = TransferRead::Analog;
  SoftBounds::Params fast = noisyCells(0.001f);
  fast.write_noise_std = 2.0f;
  fast.diffusion = 0.0005f;
  lrtt.fast = fast;
  lrtt.visible = noisyCells(0.0005f);
  config.compound = lrtt;
  config.forward.noise_management = NoiseManagement::AverageAbsMax;
  return config;
}

// One step per call, so that a run can be cut anywhere, also between two updates of a mini-batch.
std::vector<Mat> step(Tile &tile, int n) {
  const Mat in = randomMat(7, 10, 1.0f, 100 + uint64_t(n)),
            grad = randomMat(7, 12, 1.0f, 200 + uint64_t(n));
  Mat y(7, 12), dx(7, 10), w(12, 10);
  tile.forward(in.view(), y.view());
  tile.backward(grad.view(), dx.view());
  tile.update(in.view(), grad.view(), 0.05f, n % 3 == 2 ? BatchEnd::Now : BatchEnd::Later);
  tile.getWeights(w.view());
  return {y, dx, w};
}

TEST(LrttState, Property38_ResumeAnywhereInTheCycle) {
  for (int cut :
       {1, 4, 6, 11}) {  // 7, 3, 17 and 2 samples after a transfer; within and between mini-batches
    Tile whole(12, 10, noisyConfig(), 3, 1);
    for (int n = 0; n < cut; ++n) step(whole, n);
    const State saved = whole.state();
    Tile resumed(12, 10, noisyConfig(), 3, 1);
    resumed.loadState(saved);
    for (int n = cut; n < cut + 12; ++n) {
      const std::vector<Mat> expected = step(whole, n), got = step(resumed, n);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(sameBits(expected[i], got[i]))
            << "cut at " << cut << ", step " << n << ", result " << i;
      }
    }
    EXPECT_TRUE(whole.statistics() == resumed.statistics());
    const State one = whole.state(), other = resumed.state();
    EXPECT_TRUE(one.values == other.values);
    ASSERT_EQ(one.tensors.size(), other.tensors.size());
    for (const auto &entry : one.tensors)
      EXPECT_TRUE(entry.second.bytes == other.tensors.at(entry.first).bytes);
  }
}

TEST(LrttState, StatisticsTellWhatTransfersDelivered) {
  Tile tile(12, 10, noisyConfig(), 3, 1);
  for (int n = 0; n < 12; ++n) step(tile, n);
  const Value::Map told = tile.statistics();
  EXPECT_EQ(*told.at("transfers").integer(), 84 / 25);
  const Value::Map &transfer = *told.at("transfer").map();
  EXPECT_GT(*transfer.at("pulses").integer(), 0);
  EXPECT_EQ(*transfer.at("pulses").integer(), *told.at("pulses_visible").integer());
  EXPECT_GT(*transfer.at("norm_a").real(), 0.0);
  EXPECT_GE(*told.at("last_transfer").map()->at("trains").integer(), 1);
  EXPECT_GT(*told.at("memory_bytes").integer(), 0);
}

}  // namespace
}  // namespace pulsora
