#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "tile/tile.h"

// Parts of a mini-batch on the GPU, by the products that it uses by default.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

struct Case {
  int64_t outputs, inputs, samples;
};

// One case for each kernel of GPU reads: one launch with a block, a warp or a few threads per row,
// and tensor cores with and without partial sums. Without its mini-batch's size, each part would be
// read by another kernel, or in other parts.
constexpr Case kCases[] = {
    {256, 784, 300}, {10, 256, 5000},   {48, 64, 4500},
    {512, 512, 700}, {1024, 2048, 200}, {600, 1024, 600},
};

void compare(const TileConfig &config, const Case &shape) {
  const Context context = gpuContext();
  const Batch cells = randomBatch(shape.outputs, shape.inputs, 1, 4);
  const DeviceMatrix weights(context, cells.xView());
  const auto make = [&] {
    Tile tile(shape.outputs, shape.inputs, config, 5, 0, context);
    tile.setWeights(weights.view());
    return tile;
  };
  const Batch batch = randomBatch(shape.samples, shape.inputs, shape.outputs, 3);
  const DeviceBatch given(context, batch);
  Tile whole = make();
  DeviceMatrix y(context, shape.samples, shape.outputs), dx(context, shape.samples, shape.inputs);
  DeviceMatrix joined(context, shape.samples, shape.outputs);
  DeviceMatrix additiveBack(context, shape.samples, shape.inputs);
  DeviceMatrix again(context, shape.samples, shape.outputs);
  whole.forward(given.x.view(), y.view());
  whole.backward(given.d.view(), dx.view());
  const std::vector<int64_t> edges = {0, 1, 40, 40, shape.samples - 90, shape.samples};
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    Tile own = make();  // as of another process
    const int64_t begin = edges[i], count = edges[i + 1] - begin;
    const auto rows = [&](auto matrix) { return matrix.block(begin, 0, count, matrix.cols); };
    own.forward(rows(given.x.view()), rows(joined.view()), {begin, shape.samples});
    own.backward(rows(given.d.view()), rows(additiveBack.view()), {begin, shape.samples});
    own.forwardAgain(rows(given.x.view()), rows(again.view()), static_cast<uint64_t>(begin),
                     shape.samples);
  }
  EXPECT_TRUE(sameBits(y.host(context), joined.host(context)));
  EXPECT_TRUE(sameBits(y.host(context), again.host(context)));
  EXPECT_TRUE(sameBits(dx.host(context), additiveBack.host(context)));
}

TEST(CudaBatchPart, Property37_IsReadAsInTheWholeMiniBatch) {
  PULSORA_REQUIRE_GPU();
  for (const Case &shape : kCases) {
    SCOPED_TRACE(std::to_string(shape.outputs) + " x " + std::to_string(shape.inputs));
    compare(singleConfig(), shape);
    compare(lrttConfig(), shape);
  }
}

}  // namespace
}  // namespace pulsora
