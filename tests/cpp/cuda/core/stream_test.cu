#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "cuda/core/check.cuh"
#include "cuda/cuda_test_util.h"
#include "noise_models/exponential.h"
#include "noise_models/power_law.h"
#include "tile/step_graph.h"

// Work on a stream without the host, and use of memory.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

/// A stream that does not wait for the default stream, as those of other libraries.
struct Stream {
  Stream() { PULSORA_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  Context context() const {
    Context context = gpuContext();
    context.stream = stream;
    return context;
  }
  cudaStream_t stream = nullptr;
};

// Transfers in each step of 16 samples, unless changed.
TileConfig adapterConfig(const Change &change = {}) {
  return lrttConfig([&](Parts &c) {
    c.lrtt.fast = makeParams("SoftBounds");
    c.lrtt.transfer_every = 16;
    if (change) change(c);
  });
}

struct Step {
  Tile &tile;
  const DeviceBatch &on;
  DeviceMatrix &y;
  DeviceMatrix &dx;

  void operator()() const {
    tile.forward(on.x.view(), y.view());
    tile.backward(on.d.view(), dx.view());
    tile.update(on.x.view(), on.d.view(), 0.1f);
  }
};

// A stream that is being captured refuses whatever waits for it, and a captured copy from or to the
// host is a node of its own kind; so a step that can be captured, without such nodes, needs the
// host for nothing but launches.
TEST(CudaStream, AStepNeitherWaitsNorCopiesToTheHost) {
  PULSORA_REQUIRE_GPU();
  for (const TileConfig &config : {singleConfig(), idealConfig(), adapterConfig()}) {
    const Stream stream;
    const Context context = stream.context();
    const DeviceBatch on(context, randomBatch(16, 70, 45, 3));
    DeviceMatrix y(context, 16, 45);
    DeviceMatrix dx(context, 16, 70);
    Tile eager(45, 70, config, 1, 0, context);
    Tile captured(45, 70, config, 1, 0, context);
    for (Tile *tile : {&eager, &captured})
      Step{*tile, on, y, dx}();  // makes room for its scratch memory
    Step{eager, on, y, dx}();
    const std::vector<float> expected = y.host(context);
    detail::fillZero(context, y.values.data(), y.values.bytes());
    cudaGraph_t graph = nullptr;
    PULSORA_CUDA_CHECK(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeGlobal));
    Step{captured, on, y, dx}();
    PULSORA_CUDA_CHECK(cudaStreamEndCapture(stream.stream, &graph));
    size_t count = 0;
    PULSORA_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    PULSORA_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      PULSORA_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
      EXPECT_NE(type, cudaGraphNodeTypeHost);
      if (type != cudaGraphNodeTypeMemcpy) continue;
      cudaMemcpy3DParms copy{};
      PULSORA_CUDA_CHECK(cudaGraphMemcpyNodeGetParams(node, &copy));
      EXPECT_EQ(copy.kind, cudaMemcpyDeviceToDevice);
    }
    cudaGraphExec_t exec = nullptr;
    PULSORA_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    PULSORA_CUDA_CHECK(cudaGraphLaunch(exec, stream.stream));
    EXPECT_TRUE(sameBits(expected, y.host(context)));
    EXPECT_TRUE(sameState(eager.state(), captured.state()));
    PULSORA_CUDA_CHECK(cudaGraphExecDestroy(exec));
    PULSORA_CUDA_CHECK(cudaGraphDestroy(graph));
  }
}

// Steps with and without a transfer, and mini-batches of two sizes, from the first step on.
TEST(CudaStream, Property37_AStepGraphGivesThePlainCallsBits) {
  PULSORA_REQUIRE_GPU();
  for (const int64_t every : {20, 48}) {
    const Stream stream;
    const Context context = stream.context();
    const TileConfig config = adapterConfig([&](Parts &c) { c.lrtt.transfer_every = every; });
    Tile plain(45, 70, config, 1, 0, context);
    Tile recorded(45, 70, config, 1, 0, context);
    StepGraph graph(context);
    for (int n = 0; n < 30; ++n) {
      const int64_t samples = n % 4 == 3 ? 9 : 16;
      const DeviceBatch on(context, randomBatch(samples, 70, 45, static_cast<uint64_t>(n)));
      DeviceMatrix y(context, samples, 45), dx(context, samples, 70);
      Step{plain, on, y, dx}();
      const std::vector<float> expected = y.host(context);
      DeviceMatrix again(context, samples, 45);
      graph.begin();
      Step{recorded, on, again, dx}();
      graph.end();
      ASSERT_TRUE(sameBits(expected, again.host(context))) << "step " << n;
    }
    EXPECT_TRUE(sameState(plain.state(), recorded.state()));
    EXPECT_GE(graph.shapes(), 2);
  }
}

// Drift becomes the cells' own within a recorded step.
TEST(CudaStream, Property37_69_AStepGraphAtAnAgeGivesThePlainCallsBits) {
  PULSORA_REQUIRE_GPU();
  const Stream stream;
  const Context context = stream.context();
  const TileConfig config = adapterConfig([](Parts &c) {
    c.lrtt.transfer_every = 40;
    c.lrtt.retention = PowerLaw::Params{};
    c.lrtt.retention_fast = Exponential::Params{};
  });
  Tile plain(45, 70, config, 1, 0, context);
  Tile recorded(45, 70, config, 1, 0, context);
  StepGraph graph(context);
  for (int n = 0; n < 12; ++n) {
    if (n % 3 == 0) {
      plain.drift(1e4);
      recorded.drift(1e4);
    }
    const DeviceBatch on(context, randomBatch(16, 70, 45, static_cast<uint64_t>(n)));
    DeviceMatrix y(context, 16, 45), dx(context, 16, 70), again(context, 16, 45);
    Step{plain, on, y, dx}();
    graph.begin();
    Step{recorded, on, again, dx}();
    graph.end();
    ASSERT_TRUE(sameBits(y.host(context), again.host(context))) << "step " << n;
  }
  EXPECT_TRUE(sameState(plain.state(), recorded.state()));
}

// A tile too large to be read in one launch.
TEST(CudaStream, Property37_AStepGraphOfALargeTileGivesThePlainCallsBits) {
  PULSORA_REQUIRE_GPU();
  constexpr int64_t kSize = 1100, kSamples = 64;
  const Stream stream;
  const Context context = stream.context();
  const TileConfig config = adapterConfig([](Parts &c) {
    c.lrtt.rank = 16;
    c.lrtt.transfer_every = 2;
    c.lrtt.units_in_mbatch = true;
  });
  Tile plain(kSize, kSize, config, 1, 0, context);
  Tile recorded(kSize, kSize, config, 1, 0, context);
  StepGraph graph(context);
  for (int n = 0; n < 9; ++n) {
    const DeviceBatch on(context, randomBatch(kSamples, kSize, kSize, static_cast<uint64_t>(n)));
    DeviceMatrix y(context, kSamples, kSize), dx(context, kSamples, kSize);
    DeviceMatrix again(context, kSamples, kSize), dxAgain(context, kSamples, kSize);
    Step{plain, on, y, dx}();
    graph.begin();
    Step{recorded, on, again, dxAgain}();
    graph.end();
    ASSERT_TRUE(sameBits(y.host(context), again.host(context))) << "step " << n;
    ASSERT_TRUE(sameBits(dx.host(context), dxAgain.host(context))) << "step " << n;
  }
  EXPECT_TRUE(sameState(plain.state(), recorded.state()));
  // With and without a transfer, and the first of each, which makes scratch memory.
  EXPECT_LE(graph.shapes(), 4);
}

TEST(CudaStream, AStepGraphRefusesToWait) {
  PULSORA_REQUIRE_GPU();
  const Stream stream;
  const Context context = stream.context();
  Tile tile(45, 70, adapterConfig(), 1, 0, context);
  const State before = tile.state();
  StepGraph graph(context);
  EXPECT_THROW(graph.end(), StateError);
  graph.begin();
  EXPECT_THROW(graph.begin(), StateError);
  EXPECT_THROW(tile.state(), DeviceError);
  EXPECT_THROW(graph.end(), DeviceError);
  graph.begin();
  graph.abandon();
  EXPECT_TRUE(sameState(before, tile.state()));
  Context standard = context;
  standard.stream = nullptr;
  EXPECT_THROW(StepGraph{standard}, ConfigError);
}

TEST(CudaStream, ATileMayChangeItsStream) {
  PULSORA_REQUIRE_GPU();
  const Stream one, two;
  const DeviceBatch on(one.context(), randomBatch(64, 300, 200, 3));
  Tile still(200, 300, singleConfig(), 1, 0, one.context());
  Tile moving(200, 300, singleConfig(), 1, 0, one.context());
  PULSORA_CUDA_CHECK(cudaDeviceSynchronize());
  for (int n = 0; n < 20; ++n) {
    still.update(on.x.view(), on.d.view(), 0.1f, BatchEnd::Later);
    moving.setContext(n % 2 ? one.context() : two.context());
    moving.update(on.x.view(), on.d.view(), 0.1f, BatchEnd::Later);
  }
  EXPECT_TRUE(sameState(still.state(), moving.state()));
}

size_t freeBytes() {
  size_t free = 0;
  size_t total = 0;
  PULSORA_CUDA_CHECK(cudaDeviceSynchronize());
  PULSORA_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return free;
}

TEST(CudaMemory, TilesLeaveNothingBehind) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  const auto makeOne = [&](uint64_t seed) {
    Tile tile(32, 32, seed % 2 ? adapterConfig() : singleConfig(), seed, 0, gpu);
  };
  for (uint64_t n = 0; n < 100; ++n) makeOne(n);
  const size_t before = freeBytes();
  for (uint64_t n = 0; n < 10000; ++n) makeOne(n);
  EXPECT_EQ(before, freeBytes());
}

TEST(CudaMemory, AnArrayThatDoesNotFitLeavesTheOthersAlone) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  Tile tile(200, 300, singleConfig(), 1, 0, gpu);
  const State before = tile.state();
  std::vector<Buffer<float>> filling;
  EXPECT_THROW(for (;;) filling.emplace_back(gpu, int64_t{1} << 31), OutOfMemoryError);
  EXPECT_THROW(Tile(65536, 65536, singleConfig(), 1, 0, gpu), OutOfMemoryError);
  EXPECT_TRUE(sameState(before, tile.state()));
  filling.clear();
  const DeviceBatch on(gpu, randomBatch(16, 300, 200, 3));
  tile.update(on.x.view(), on.d.view(), 0.1f);
  EXPECT_FALSE(sameState(before, tile.state()));
}

TEST(CudaMemory, MissingDevicesAreNamed) {
  PULSORA_REQUIRE_GPU();
  Context context = gpuContext();
  context.device = 99;
  try {
    Tile(4, 4, singleConfig(), 1, 0, context);
    FAIL() << "cuda:99 was accepted";
  } catch (const DeviceError &error) {
    EXPECT_NE(std::string(error.what()).find("cuda:99"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pulsora
