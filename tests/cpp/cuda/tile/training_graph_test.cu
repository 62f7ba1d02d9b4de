#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "cuda/core/check.cuh"
#include "cuda/cuda_test_util.h"
#include "tile/training_graph.h"

// Steps of which a tile enqueues one part and a library, here copies, the rest.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr int64_t kInputs = 70, kOutputs = 45, kSamples = 16;

/// A stream of the library, and a graph that it captures; both for one test.
struct Library {
  Library() { PULSORA_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Library() {
    if (graph) cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
  void begin() const {
    PULSORA_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  void end() { PULSORA_CUDA_CHECK(cudaStreamEndCapture(stream, &graph)); }
  void copy(const DeviceMatrix &from, DeviceMatrix &to) const {
    PULSORA_CUDA_CHECK(cudaMemcpyAsync(to.values.data(), from.values.data(), from.values.bytes(),
                                       cudaMemcpyDeviceToDevice, stream));
  }
  Context context() const {
    Context context = gpuContext();
    context.stream = stream;
    return context;
  }
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
};

TileConfig adapterConfig() {
  return lrttConfig([](Parts &c) { c.lrtt.transfer_every = 48; });
}

// d is y, copied by the library between the two reads. Steps with and without a transfer.
TEST(CudaTrainingGraph, Property37_RunsGiveThePlainCallsBits) {
  PULSORA_REQUIRE_GPU();
  for (const TileConfig &config : {adapterConfig(), singleConfig()}) {
    Library library;
    TrainingGraph graph(0);
    Context own = gpuContext();
    own.stream = graph.stream(3);
    const Context context = library.context();
    Tile plain(kOutputs, kInputs, config, 1, 0, context);
    Tile kept(kOutputs, kInputs, config, 1, 0, own);
    DeviceMatrix x(context, kSamples, kInputs), dx(context, kSamples, kInputs);
    DeviceMatrix y(context, kSamples, kOutputs), d(context, kSamples, kOutputs);
    DeviceMatrix expectedY(context, kSamples, kOutputs), expectedDx(context, kSamples, kInputs);
    float lr = 0.1F;

    library.begin();
    graph.add(library.stream, 3, [&] { kept.forward(x.view(), y.view()); });
    library.copy(y, d);
    graph.add(library.stream, 3, [&] { kept.backward(d.view(), dx.view()); });
    graph.add(library.stream, 3, [&] { kept.update(x.view(), d.view(), lr, BatchEnd::Later); });
    graph.add(library.stream, 3, [&] { kept.endBatch(lr); });
    library.end();
    graph.finish(library.graph);
    EXPECT_EQ(kept.counters().forwardSamples, 0U);  // nothing has run yet

    for (int n = 0; n < 24; ++n) {
      lr = n < 12 ? 0.1F : 0.03F;
      const Batch batch = randomBatch(kSamples, kInputs, kOutputs, static_cast<uint64_t>(n));
      detail::copyFromHost(context, x.values.data(), batch.x.data(), x.values.bytes());
      plain.forward(x.view(), expectedY.view());
      plain.backward(expectedY.view(), expectedDx.view());
      plain.update(x.view(), expectedY.view(), lr);
      graph.run(library.stream);
      ASSERT_TRUE(sameBits(expectedY.host(context), y.host(context))) << "step " << n;
      ASSERT_TRUE(sameBits(expectedDx.host(context), dx.host(context))) << "step " << n;
    }
    EXPECT_TRUE(sameState(plain.state(), kept.state()));
    EXPECT_GE(graph.shapes(), 1);
  }
}

TEST(CudaTrainingGraph, ACallThatThrowsRunsNothing) {
  PULSORA_REQUIRE_GPU();
  Library library;
  TrainingGraph graph(0);
  const Context context = library.context();
  DeviceMatrix from(context, randomBatch(1, 8, 8, 1).xView()), to(context, 1, 8);
  bool throws = true;
  library.begin();
  library.copy(from, to);
  graph.add(library.stream, 3, [&] {
    if (throws) throw InputError("as a tile might");
  });
  library.end();
  graph.finish(library.graph);
  EXPECT_THROW(graph.run(library.stream), InputError);
  EXPECT_EQ(to.host(context), std::vector<float>(8, 0.0F));
  throws = false;
  graph.run(library.stream);  // with a part that enqueues nothing
  EXPECT_EQ(to.host(context), from.host(context));
}

TEST(CudaTrainingGraph, RefusesWhatComesAtTheWrongTime) {
  PULSORA_REQUIRE_GPU();
  Library library;
  TrainingGraph graph(0);
  EXPECT_THROW(graph.add(nullptr, 0, [] {}), StateError);
  EXPECT_THROW(graph.add(library.stream, 3, [] {}), StateError);
  EXPECT_THROW(graph.run(library.stream), StateError);
  EXPECT_THROW(graph.finish(nullptr), StateError);
  library.begin();
  graph.add(library.stream, 3, [] {});
  library.end();
  graph.finish(library.graph);
  EXPECT_THROW(graph.finish(library.graph), StateError);
  EXPECT_THROW(graph.add(library.stream, 3, [] {}), StateError);
}

}  // namespace
}  // namespace pulsora
