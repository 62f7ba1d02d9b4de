#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "tile/tile_test_util.h"

// Reads of an adapter's arrays with many long rows, which a GPU makes on its tensor cores.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

struct Case {
  const char *name;
  int64_t rows, cols;
  int rank;
  float size = 1.0f;  // of the inputs
  std::function<void(IOParameters &)> change = [](IOParameters &) {};
};

std::ostream &operator<<(std::ostream &out, const Case &c) { return out << c.name; }

const Case kCases[] = {
    {"Defaults", 1036, 1100, 4},
    {"LargeArray", 1540, 1400, 8},
    {"SixteenBits", 1036, 1100, 12, 1.0f, [](IOParameters &io) { io.weight_bits = 16; }},
    {"ManyLines", 1540, 1400, 40},
    {"OddSizes", 1033, 1101, 4},
    {"SmallNumbers", 1036, 1100, 4, 1e-36f},
    {"LargeNumbers", 1036, 1100, 4, 1e30f},
    {"Repeats", 1540, 1400, 4, 1.0f,
     [](IOParameters &io) { io.out_bound = 0.3f, io.bm_backward = true; }},
    {"WorstCase", 1036, 1100, 4, 1.0f,
     [](IOParameters &io) {
       io.out_bound = 0.3f, io.bound_management = BoundManagement::IterativeWorstCase;
       io.bm_backward = true;
     }},
    {"ClippedInputs", 1036, 1100, 4, 5.0f,
     [](IOParameters &io) { io.noise_management = NoiseManagement::Constant, io.nm_thres = 0.5f; }},
    {"FineInputs", 1036, 1100, 4, 1.0f, [](IOParameters &io) { io.inp_res = 1.0f / 1000.0f; }},
};

class CudaTileOfRows : public ::testing::TestWithParam<Case> {};

// Two steps of 525 samples: 32 blocks of 16 rows, and one with 13.
Course stepsOf(const Context &context, const Case &c) {
  constexpr int64_t kSamples = 525;
  TileConfig config = lrttConfig([&](Parts &parts) {
    parts.lrtt.rank = c.rank;
    parts.lrtt.transfer_every = 0;  // which takes most of the time, and is tested elsewhere
  });
  for (IOParameters *io : {&config.forward, &config.backward}) {
    io->weight_bits = 24;
    c.change(*io);
  }
  Tile tile(c.rows, c.cols, config, 5, 2, context);
  Course course;
  for (uint64_t step = 0; step < 2; ++step) {
    Batch batch = trainingBatch(kSamples, c.cols, c.rows, true, step);
    for (float &x : batch.x) x *= c.size;
    const DeviceBatch on(context, batch);
    DeviceMatrix y(context, kSamples, c.rows);
    DeviceMatrix dx(context, kSamples, c.cols);
    tile.forward(on.x.view(), y.view());
    tile.backward(on.d.view(), dx.view());
    tile.update(on.x.view(), on.d.view(), 0.05f, BatchEnd::Later);
    course.results.push_back(y.host(context));
    course.results.push_back(dx.host(context));
  }
  course.state = tile.state();
  return course;
}

TEST_P(CudaTileOfRows, Property36_HasTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  const Course cpu = stepsOf(cpuContext(), GetParam());
  const Course gpu = stepsOf(gpuContext(), GetParam());
  for (size_t r = 0; r < cpu.results.size(); ++r)
    ASSERT_TRUE(sameBits(cpu.results[r], gpu.results[r])) << "result " << r;
  ASSERT_TRUE(sameState(cpu.state, gpu.state));
}

INSTANTIATE_TEST_SUITE_P(Reads, CudaTileOfRows, ::testing::ValuesIn(kCases),
                         [](const auto &each) { return std::string(each.param.name); });

TEST(CudaTileOfRowsRefuses, Property07_InputsThatAreNotFiniteChangeNothing) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  const TileConfig config = lrttConfig([](Parts &c) { c.lrtt.transfer_every = 0; });
  Tile tile(1036, 1100, config, 5, 2, gpu);
  Batch batch = randomBatch(525, 1100, 1036, 1);
  tile.update(DeviceMatrix(gpu, batch.xView()).view(), DeviceMatrix(gpu, batch.dView()).view(),
              0.05f, BatchEnd::Later);
  const State before = tile.state();
  batch.x[1100 * 300 + 7] = kInfinity;
  const DeviceBatch on(gpu, batch);
  DeviceMatrix y(gpu, 525, 1036);
  tile.forward(on.x.view(), y.view());
  const std::vector<float> read = y.host(gpu);
  EXPECT_TRUE(std::isnan(read[1036 * 300])) << read[1036 * 300];
  EXPECT_TRUE(std::isfinite(read[1036 * 301]));
  tile.update(on.x.view(), on.d.view(), 0.05f, BatchEnd::Later);
  EXPECT_THROW(tile.state(), InputError);
  const State after = tile.state();
  for (const auto &[name, tensor] : before.tensors) {
    if (name.find("snapshot") != std::string::npos) continue;  // retaken for each mini-batch
    EXPECT_EQ(tensor.bytes, after.tensors.at(name).bytes) << name;
  }
}

}  // namespace
}  // namespace pulsora
