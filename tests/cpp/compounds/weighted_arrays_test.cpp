#include "compounds/weighted_arrays.h"

#include <gtest/gtest.h>

#include "lrtt/lrtt_test_util.h"

namespace pulsora {
namespace {

constexpr int64_t kRows = 6;
constexpr int64_t kCols = 8;

struct Arrays {
  std::vector<std::unique_ptr<PulsedDevice>> owned;
  std::vector<const PulsedDevice *> list;

  explicit Arrays(int count) {
    for (int k = 0; k < count; ++k) {
      const auto slot = static_cast<uint32_t>(k);
      owned.push_back(std::make_unique<PulsedDevice>(Context{}, noisyCells(0.002f), kRows, kCols,
                                                     TileKeys{9, 2}.of(slot, Role::Cells), slot));
      owned.back()->setWeights({}, randomMat(kRows, kCols, 0.3f, slot).view(), 0);
      list.push_back(owned.back().get());
    }
  }
};

Mat sumOf(const Arrays &arrays, const std::vector<float> &gammas) {
  Mat sum(kRows, kCols);
  for (size_t k = 0; k < gammas.size(); ++k) {
    const MatrixView<const float> weights = arrays.list[k]->weights();
    for (int64_t i = 0; i < sum.view().size(); ++i)
      sum.view().data[i] += gammas[k] * weights.data[i];
  }
  return sum;
}

TEST(WeightedArrays, IsTheSumAfterEveryKindOfChange) {
  Arrays arrays(3);
  const std::vector<float> gammas = {0.5f, -0.25f, 2.0f};
  WeightedArrays sum(arrays.list, gammas);
  PulsedDevice &changed = *arrays.owned[1];
  changed.addColumnSigns({});
  PulsedWeightUpdater updater({}, RandomKey{1, 2});
  const Mat x = randomMat(5, kCols, 1.0f, 1), d = randomMat(5, kRows, 0.3f, 2);
  const std::vector<float> turned = {-1, 1, 1, -1, 1, 1, 1, -1};
  State state;
  changed.saveTo({}, state, "");
  const std::vector<std::pair<const char *, std::function<void()>>> changes = {
      {"nothing", [] {}},
      {"setWeights", [&] { changed.setWeights({}, randomMat(kRows, kCols, 0.2f, 5).view(), 1); }},
      {"update", [&] { updater.update({}, changed, x.view(), d.view(), 0.1f, 0); }},
      {"outer product",
       [&] { changed.applyOuterProduct({}, x.view(), d.view(), 0.1f, Bounds::Later, 5); }},
      {"relax", [&] { changed.relax({}, 0); }},
      {"resetColumns", [&] { changed.resetColumns({}, 2, 4, 0.5f, 1); }},
      {"addWeights", [&] { changed.addWeights({}, randomMat(kRows, kCols, 0.1f, 6).view(), 2); }},
      {"turnColumns", [&] { changed.turnColumns({}, turned.data()); }},
      {"loadFrom", [&] { changed.loadFrom({}, state, ""); }},
      {"another array", [&] { arrays.owned[0]->resetColumns({}, 0, 3, 1.0f, 3); }}};
  for (const auto &[name, change] : changes) {
    change();
    const Mat expected = sumOf(arrays, gammas);
    EXPECT_TRUE(sameBits(Mat(sum.weights({})), expected)) << name;
    Mat written(kRows, kCols);
    sum.write({}, written.view());
    EXPECT_TRUE(sameBits(written, expected)) << name;
  }
}

// The kept sum is made only after a change: whoever writes into it sees that.
TEST(WeightedArrays, IsKeptUntilAnArrayChanges) {
  Arrays arrays(2);
  WeightedArrays sum(arrays.list, {0.5f, 0.5f});
  const MatrixView<const float> kept = sum.weights({});
  const float right = kept(1, 1);
  const_cast<float &>(kept(1, 1)) = 77.0f;
  EXPECT_EQ(sum.weights({})(1, 1), 77.0f);
  arrays.owned[1]->setWeights({}, arrays.list[1]->weights(), 1);
  EXPECT_EQ(sum.weights({})(1, 1), right);
}

TEST(WeightedArrays, OneArrayAloneIsNotStoredAgain) {
  Arrays arrays(3);
  WeightedArrays alone(arrays.list, {0.0f, 1.0f, 0.0f});
  EXPECT_EQ(alone.weights({}).data, arrays.list[1]->weights().data);
  EXPECT_EQ(alone.memoryBytes(), 0U);
  WeightedArrays scaled(arrays.list, {0.0f, 0.5f, 0.0f});
  EXPECT_TRUE(sameBits(Mat(scaled.weights({})), sumOf(arrays, {0.0f, 0.5f, 0.0f})));
}

TEST(WeightedArrays, RefusesWeightsThatAreNoSum) {
  const Arrays arrays(2);
  EXPECT_THROW(WeightedArrays(arrays.list, {1.0f}), ConfigError);
  EXPECT_THROW(WeightedArrays(arrays.list, {0.0f, 0.0f}), ConfigError);
}

}  // namespace
}  // namespace pulsora
