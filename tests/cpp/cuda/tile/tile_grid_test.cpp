#include "tile/tile_grid.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "util/message_test_util.h"

// Compares a matrix on several tiles of a GPU with the CPU, and with the tiles called one by one,
// without batched launches.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

/// How a matrix is cut into tiles, and a mini-batch for it.
struct Cuts {
  std::vector<int64_t> rows;  // where the tiles of each row of tiles end
  std::vector<int64_t> cols;
  int64_t batch;
};

const Cuts kUneven = {{20, 45}, {24, 47, 70}, 33};

std::vector<int64_t> evenly(int64_t count, int64_t size) {
  std::vector<int64_t> ends;
  for (int64_t i = 1; i <= count; ++i) ends.push_back(i * size);
  return ends;
}

/// The tiles of a matrix, called together or one by one.
class TestGrid {
 public:
  TestGrid(const Context &context, const Cuts &cuts, const TileConfig &config)
      : context_(context), outputs_(cuts.rows.back()), inputs_(cuts.cols.back()) {
    tiles_.reserve(cuts.rows.size() * cuts.cols.size());
    for (size_t i = 0; i < cuts.rows.size(); ++i) {
      for (size_t j = 0; j < cuts.cols.size(); ++j) {
        const int64_t row = i ? cuts.rows[i - 1] : 0;
        const int64_t col = j ? cuts.cols[j - 1] : 0;
        tiles_.emplace_back(cuts.rows[i] - row, cuts.cols[j] - col, config, 5,
                            static_cast<uint32_t>(tiles_.size()), context);
        placed_.push_back({&tiles_.back(), row, col});
      }
    }
  }
  std::vector<Tile> &tiles() { return tiles_; }
  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  TileGrid together() const { return TileGrid(placed_, outputs_, inputs_); }

  /// The expected read of a grid, from reads of its tiles.
  std::vector<float> readApart(const Batch &batch, Pass pass) {
    const bool forward = pass == Pass::Forward;
    const int64_t width = forward ? outputs_ : inputs_;
    std::vector<float> sums(static_cast<size_t>(batch.samples * width));
    std::vector<bool> begun(static_cast<size_t>(width));
    for (const auto &[tile, row, col] : placed_) {
      const DeviceMatrix in(context_, block(batch, forward, forward ? col : row, tile));
      DeviceMatrix out(context_, batch.samples, forward ? tile->dSize() : tile->xSize());
      forward ? tile->forward(in.view(), out.view()) : tile->backward(in.view(), out.view());
      const std::vector<float> read = out.host(context_);
      const int64_t first = forward ? row : col;
      for (int64_t i = 0; i < batch.samples * out.cols; ++i) {
        float &sum = sums[static_cast<size_t>(i / out.cols * width + first + i % out.cols)];
        const float value = read[static_cast<size_t>(i)];
        sum = begun[static_cast<size_t>(first)] ? sum + value : value;
      }
      begun[static_cast<size_t>(first)] = true;
    }
    return sums;
  }
  void updateApart(const Batch &batch, float lr) {
    for (const auto &[tile, row, col] : placed_) {
      const DeviceMatrix x(context_, block(batch, true, col, tile));
      const DeviceMatrix d(context_, block(batch, false, row, tile));
      tile->update(x.view(), d.view(), lr);
    }
  }

 private:
  /// The columns of x or d that a tile takes, without gaps.
  MatrixView<const float> block(const Batch &batch, bool ofX, int64_t first, const Tile *tile) {
    const MatrixView<const float> all = ofX ? batch.xView() : batch.dView();
    const int64_t count = ofX ? tile->xSize() : tile->dSize();
    block_.resize(static_cast<size_t>(all.rows * count));
    for (int64_t i = 0; i < all.rows; ++i) {
      for (int64_t j = 0; j < count; ++j)
        block_[static_cast<size_t>(i * count + j)] = all(i, first + j);
    }
    return rowMajor<const float>(block_.data(), all.rows, count);
  }

  Context context_;
  int64_t outputs_;
  int64_t inputs_;
  std::vector<Tile> tiles_;
  std::vector<PlacedTile> placed_;
  std::vector<float> block_;
};

/// Reads and states after some mini-batches, as numbers in host memory. `prepare` may change tiles.
std::vector<Course> trainGrid(const Context &context, const Cuts &cuts, const TileConfig &config,
                              bool together, const std::function<void(Tile &)> &prepare = {}) {
  TestGrid test(context, cuts, config);
  if (prepare) prepare(test.tiles().back());
  TileGrid grid = test.together();
  std::vector<Course> courses(1);
  auto &results = courses.front().results;
  for (uint64_t n = 0; n < 4; ++n) {
    const Batch batch =
        trainingBatch(cuts.batch, test.inputs(), test.outputs(), n % 2 == 0, 60 + n);
    if (!together) {
      results.push_back(test.readApart(batch, Pass::Forward));
      results.push_back(test.readApart(batch, Pass::Backward));
      test.updateApart(batch, 0.1f);
      continue;
    }
    const DeviceBatch given(context, batch);
    DeviceMatrix y(context, cuts.batch, test.outputs()), dx(context, cuts.batch, test.inputs());
    grid.forward(given.x.view(), y.view());
    grid.backward(given.d.view(), dx.view());
    grid.update(given.x.view(), given.d.view(), 0.1f);
    results.push_back(y.host(context));
    results.push_back(dx.host(context));
  }
  for (Tile &tile : test.tiles()) {
    DeviceMatrix weights(context, tile.dSize(), tile.xSize());
    tile.getWeights(weights.view());
    courses.push_back({{weights.host(context)}, tile.state()});
  }
  return courses;
}

void expectSame(const std::vector<Course> &first, const std::vector<Course> &second) {
  ASSERT_EQ(first.size(), second.size());
  for (size_t k = 0; k < first.size(); ++k) {
    for (size_t i = 0; i < first[k].results.size(); ++i)
      ASSERT_TRUE(sameBits(first[k].results[i], second[k].results[i]))
          << (k == 0 ? "read " : "weights of tile ") << (k == 0 ? i : k - 1);
    if (k > 0) {
      ASSERT_TRUE(sameState(first[k].state, second[k].state)) << "state of tile " << k - 1;
    }
  }
}

TEST(CudaTileGrid, Property36_HasTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const TileConfig &config : {singleConfig(), lrttConfig(), idealConfig()})
    expectSame(trainGrid(cpuContext(), kUneven, config, true),
               trainGrid(reproducibleGpu(), kUneven, config, true));
}

TEST(CudaTileGrid, Property36_HasTheBitsOfItsTilesInEverySetting) {
  PULSORA_REQUIRE_GPU();
  const auto narrow = [](Parts &p) { p.forward.out_bound = 0.5f; };
  const std::vector<std::pair<const char *, TileConfig>> configs = {
      {"single", singleConfig()},
      {"repeats", singleConfig(narrow)},
      {"adapter", lrttConfig()},
      {"adapter that repeats", lrttConfig(narrow)},
      {"adapter beside", lrttConfig([](Parts &p) { p.lrtt.forward_inject = false; })},
      {"transfers in every mini-batch",
       lrttConfig([](Parts &p) { p.lrtt.units_in_mbatch = true, p.lrtt.transfer_every = 1; })},
      {"shared converters", lrttConfig([](Parts &p) { p.lrtt.inject_io = InjectIo::Shared; })},
      {"kept reads", lrttConfig([](Parts &p) { p.lrtt.projection = Projection::Reuse; })},
      {"noise of a mini-batch", singleConfig([](Parts &p) {
         p.device = makeParams("ConstantStep", {{"noise_merge", Value("batch")}});
       })},
      {"write noise and decay", singleConfig([](Parts &p) {
         p.device = makeParams("ConstantStep",
                               {{"write_noise_std", Value(0.5)}, {"lifetime", Value(100.0)}});
       })},
      {"wires", singleConfig([](Parts &p) { p.forward.ir_drop = 1.0f; })},
      {"poor wires", singleConfig([](Parts &p) {
         p.forward.ir_drop = p.backward.ir_drop = 1.0f;
         p.forward.ir_drop_gw_div_gmax = p.backward.ir_drop_gw_div_gmax = 5.0f;
       })},
      {"perfect", idealConfig()},
  };
  for (const auto &[name, config] : configs) {
    SCOPED_TRACE(name);
    expectSame(trainGrid(gpuContext(), kUneven, config, false),
               trainGrid(gpuContext(), kUneven, config, true));
    if (HasFailure()) return;
  }
}

TEST(CudaTileGrid, Property36_HasTheBitsOfItsTilesInEveryShape) {
  PULSORA_REQUIRE_GPU();
  const std::vector<std::pair<const char *, Cuts>> shapes = {
      {"one tile", {{30}, {40}, 9}},
      {"one column of tiles", {evenly(5, 40), {70}, 12}},
      {"one row of the batch", {evenly(2, 33), evenly(2, 65), 1}},
      {"more tiles than a launch takes", {evenly(5, 24), evenly(7, 36), 5}},
      {"many short rows", {evenly(2, 24), evenly(2, 20), 4100}},
      {"products on the tensor cores, an adapter beside", {evenly(2, 600), {256, 512, 764}, 256}},
      {"more reads than are kept", {evenly(2, 600), evenly(3, 200), 9400}},
      {"products on the tensor cores, an adapter before", {{1500}, {1500, 2996}, 64}},
  };
  for (const auto &shape : shapes) {
    const auto &name = shape.first;
    const auto &cuts = shape.second;
    SCOPED_TRACE(name);
    const bool large = cuts.rows.back() > 1000;
    for (const TileConfig &config :
         {singleConfig(), lrttConfig([&](Parts &p) { p.lrtt.transfer_every = 2 * cuts.batch; })}) {
      if (large && config.compound.model().kind == "single") continue;
      expectSame(trainGrid(gpuContext(), cuts, config, false),
                 trainGrid(gpuContext(), cuts, config, true));
      if (HasFailure()) return;
    }
  }
}

TEST(CudaTileGrid, Property36_RowsOfOneTileAreReadAgain) {
  PULSORA_REQUIRE_GPU();
  // Only the weights of the last tile leave the range of the ADC; in small tiles and in large ones.
  const auto fill = [](Tile &tile) {
    const std::vector<float> values(static_cast<size_t>(tile.dSize() * tile.xSize()), 0.5f);
    tile.setWeights(
        DeviceMatrix(gpuContext(), rowMajor(values.data(), tile.dSize(), tile.xSize())).view());
  };
  const auto narrow = [](Parts &p) { p.forward.out_bound = 1.0f; };
  for (const Cuts &cuts : {kUneven, Cuts{{300, 600}, {400, 800}, 300}}) {
    for (const TileConfig &config : {singleConfig(narrow), lrttConfig(narrow)}) {
      const auto apart = trainGrid(gpuContext(), cuts, config, false, fill);
      expectSame(apart, trainGrid(gpuContext(), cuts, config, true, fill));
      if (HasFailure()) return;
      TileConfig unmanaged = config;
      unmanaged.forward.bound_management = BoundManagement::None;
      const auto once = trainGrid(gpuContext(), cuts, unmanaged, true, fill);
      EXPECT_FALSE(sameBits(apart[0].results[0], once[0].results[0])) << "no row was read again";
    }
  }
}

// Two processes, each of which makes the pulses of some tiles and sends the changes.
TEST(CudaTileGrid, Property36_TilesUpdatedElsewhereHaveTheSameBits) {
  PULSORA_REQUIRE_GPU();
  const Context context = gpuContext();
  for (const TileConfig &config : {singleConfig(), lrttConfig(), idealConfig()}) {
    TestGrid alone(context, kUneven, config), first(context, kUneven, config),
        second(context, kUneven, config);
    TileGrid grid = alone.together(), here = first.together(), there = second.together();
    TileGrid::Numbers mine, theirs;
    for (size_t i = 0; i < alone.tiles().size(); ++i) (i % 2 ? theirs : mine).push_back(i);
    uint64_t step = 0;
    const auto share = [&](const TileGrid::Numbers &tiles, TileGrid &from, TileGrid &to) {
      const ChangedParts parts = step % 2 == 0 ? ChangedParts::All : ChangedParts::Tensors;
      DeviceMatrix changes(context, 1, from.changesSize(tiles, parts));
      from.packChanges(tiles, changes.view().row(0), parts);
      if (parts == ChangedParts::Tensors) {
        to.releaseWeights(tiles);
        to.restoreNumbers(tiles, from.changedNumbers(tiles));
      }
      to.unpackChanges(tiles, {changes.view().data, changes.cols}, parts);
    };
    for (; step < 4; ++step) {
      const Batch batch =
          trainingBatch(kUneven.batch, alone.inputs(), alone.outputs(), false, 80 + step);
      const DeviceBatch given(context, batch);
      grid.update(given.x.view(), given.d.view(), 0.1f);
      here.updateSome(mine, given.x.view(), given.d.view(), 0.1f);
      there.updateSome(theirs, given.x.view(), given.d.view(), 0.1f);
      share(mine, here, there);
      share(theirs, there, here);
      for (size_t i = 0; i < alone.tiles().size(); ++i) {
        ASSERT_TRUE(sameState(alone.tiles()[i].state(), first.tiles()[i].state())) << i;
        ASSERT_TRUE(sameState(alone.tiles()[i].state(), second.tiles()[i].state())) << i;
      }
    }
  }
}

TEST(CudaTileGrid, TilesThatAreUpdatedElsewhereTellOfBadInputsToo) {
  PULSORA_REQUIRE_GPU();
  const Context context = gpuContext();
  TestGrid test(context, kUneven, singleConfig()), other(context, kUneven, singleConfig());
  TileGrid here = test.together(), there = other.together();
  Batch batch = trainingBatch(kUneven.batch, test.inputs(), test.outputs(), false, 3);
  std::fill(batch.x.begin(), batch.x.end(), std::numeric_limits<float>::quiet_NaN());
  const DeviceBatch given(context, batch);
  here.updateSome({0}, given.x.view(), given.d.view(), 0.1f);
  DeviceMatrix changes(context, 1, here.changesSize({0}));
  here.packChanges({0}, changes.view().row(0));
  there.unpackChanges({0}, {changes.view().data, changes.cols});
  EXPECT_THROW(test.tiles()[0].state(), InputError);
  EXPECT_THROW(other.tiles()[0].state(), InputError);
  EXPECT_EQ(messageOf([&] { other.tiles()[1].state(); }), "");
}

TEST(CudaTileGrid, ARefusedUpdateChangesNothing) {
  PULSORA_REQUIRE_GPU();
  const Context context = gpuContext();
  TestGrid first(context, kUneven, singleConfig()), second(context, kUneven, singleConfig());
  const Batch batch = trainingBatch(kUneven.batch, first.inputs(), first.outputs(), false, 3);
  const DeviceBatch given(context, batch);
  TileGrid grid = first.together();
  EXPECT_THROW(grid.update(given.x.view(), given.d.view(), 1e30f), ConfigError);
  grid.update(given.x.view(), given.d.view(), 0.1f);
  second.updateApart(batch, 0.1f);
  for (size_t i = 0; i < first.tiles().size(); ++i)
    EXPECT_TRUE(sameState(first.tiles()[i].state(), second.tiles()[i].state())) << i;
}

}  // namespace
}  // namespace pulsora
