#include <algorithm>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

#include "core/scratch.h"
#include "cuda/cuda_test_util.h"
#include "linalg/integer_product.h"
#include "numerics/random.h"
#include "periphery/read_kernels.h"
#include "tile/tile_test_util.h"

// Products of integers for many samples on a GPU, which take the bytes of the weights from memory,
// against those of the CPU.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr float kBound = 0.7f;
constexpr float kUnit = 0x1.8p-20f;

struct Case {
  const char *name;
  int64_t rows, depth, lines;
  int bits = 24;
  bool transposed = false;  // weights are stored input by input
  int64_t linesAtOnce = 0;  // 0: all
  bool largest = false;     // all factors have the largest magnitude
  int64_t gap = 0;          // weights between the end of a stored row and the next one
};

std::ostream &operator<<(std::ostream &out, const Case &c) { return out << c.name; }

const Case kCases[] = {
    {"OneBlock", 512, 128, 64},
    {"OneBlockTransposed", 512, 128, 64, 24, true},
    {"FewInputs", 512, 5, 70},
    {"OddSizes", 777, 301, 131},
    {"OddSizesTransposed", 777, 301, 131, 24, true},
    {"SixteenBits", 600, 260, 200, 16},
    {"SixteenBitsTransposed", 600, 260, 200, 16, true},
    {"LinesInTurns", 513, 384, 330, 24, false, 64},
    {"LinesInTurnsTransposed", 513, 384, 330, 24, true, 128},
    {"LargestSums", 512, 16384, 65, 24, false, 0, true},
    {"LargestSumsSixteenBits", 512, 16384, 65, 16, true, 0, true},
    {"PartOfAnArray", 700, 516, 190, 24, false, 0, false, 4},
    {"PartOfAnArrayTransposed", 700, 514, 190, 24, true, 0, false, 7},
};

class CudaDigitProduct : public ::testing::TestWithParam<Case> {};

struct Factors {
  std::vector<int16_t> levels;  // [rows, depth], and one more
  std::vector<float> weights;   // as they are stored
};

Factors factorsOf(const Case &c) {
  Factors f;
  const RandomKey key = makeKey(5, 2, 1);
  const auto word = [&](int64_t i, uint32_t which) {
    return draw(key, Purpose::UserDraw, static_cast<uint64_t>(i), which).v[0];
  };
  for (int64_t i = 0; i <= c.rows * c.depth; ++i) {
    const auto level = static_cast<int32_t>(word(i, 0) >> 8) % 255 - 127;
    f.levels.push_back(static_cast<int16_t>(c.largest ? 127 - 254 * (i % 3 == 0) : level));
  }
  const int64_t stored = c.transposed ? c.depth * (c.lines + c.gap) : c.lines * (c.depth + c.gap);
  for (int64_t i = 0; i < stored; ++i) {
    const float weight = kBound * (2.0f * uniform(word(i, 1)) - 1.0f);
    f.weights.push_back(c.largest ? -kBound : weight);
  }
  return f;
}

MatrixView<const float> weightsOf(const Case &c, const float *stored) {
  return c.transposed
             ? rowMajor(stored, c.depth, c.lines + c.gap).block(0, 0, c.depth, c.lines).transposed()
             : rowMajor(stored, c.lines, c.depth + c.gap).block(0, 0, c.lines, c.depth);
}

TEST_P(CudaDigitProduct, Property36_HasTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  const Case &c = GetParam();
  const Context gpu = gpuContext();
  if (cudaDigitBytes(gpu, rowMajor<const float>(nullptr, 4096, 4096), 4096, integerWeights(24, 1.0),
                     true) == 0)
    GTEST_SKIP() << "these products are for compute capability 9.0";
  const Factors f = factorsOf(c);
  const IntegerWeights integers = integerWeights(c.bits, kBound);
  std::vector<float> expected(static_cast<size_t>(c.rows * c.lines));
  integerProduct(rowMajor(f.levels.data(), c.rows, c.depth), 127, weightsOf(c, f.weights.data()),
                 integers, kUnit, rowMajor(expected.data(), c.rows, c.lines), 8,
                 supportedIsas().back());

  const int64_t pitch = (c.depth + 15) / 16 * 16;
  std::vector<uint8_t> bytes(static_cast<size_t>(c.rows * pitch));
  const LevelBytes hostLevels{bytes.data(), pitch, 0};
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t k = 0; k < c.depth; ++k)
      hostLevels.put(r, k, f.levels[static_cast<size_t>(r * c.depth + k)]);
  }
  Buffer<uint8_t> levels(gpu, c.rows * pitch);
  detail::copyFromHost(gpu, levels.data(), bytes.data(), levels.bytes());
  const DeviceMatrix weights(gpu,
                             rowMajor(f.weights.data(), 1, static_cast<int64_t>(f.weights.size())));
  const int64_t atOnce = c.linesAtOnce ? c.linesAtOnce : c.lines;
  Buffer<uint8_t> digits(gpu, c.bits / 8 * pitch * atOnce);
  const std::vector<float> nothing(static_cast<size_t>(c.rows * c.lines), kNaN);
  DeviceMatrix sums(gpu, rowMajor(nothing.data(), c.rows, c.lines));
  cudaMultiplyIntegers(
      gpu, {levels.data(), pitch, 0}, c.rows, weightsOf(c, weights.values.data()), integers,
      {sums.values.data(), nullptr, 1, kUnit, true, {digits.data(), digits.size()}}, false);
  ASSERT_TRUE(sameBits(expected, sums.host(gpu)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaDigitProduct, ::testing::ValuesIn(kCases),
                         [](const auto &each) { return std::string(each.param.name); });

TEST(CudaDigitBytes, AboutAQuarterOfTheScratchLimit) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  const IntegerWeights integers = integerWeights(24, 1.0);
  const auto bytesOf = [&](int64_t lines, int64_t depth, int64_t rows, bool oneByte = true) {
    return cudaDigitBytes(gpu, rowMajor<const float>(nullptr, lines, depth), rows, integers,
                          oneByte);
  };
  if (bytesOf(4096, 4096, 4096) == 0)
    GTEST_SKIP() << "these products are for compute capability 9.0";
  EXPECT_EQ(bytesOf(4096, 4096, 2048), 3 * 4096 * 4096);
  EXPECT_EQ(bytesOf(4096, 4090, 2048), 3 * 4096 * 4096);
  EXPECT_EQ(bytesOf(4096, 4096, 256), 0) << "too few samples";
  EXPECT_EQ(bytesOf(4096, 4096, 2048, false), 0) << "levels of two bytes";
  EXPECT_EQ(bytesOf(4096, 16385, 2048), 0) << "sums of more than 32 bits";
  EXPECT_EQ(bytesOf(512, 512, 2048), 0) << "too few blocks for a GPU";
  EXPECT_GT(bytesOf(32000, 4096, 2048), scratchLimit() / 6);
  EXPECT_LT(bytesOf(32000, 4096, 2048), scratchLimit() / 2);
  const int64_t before = scratchLimit();
  setScratchLimit(int64_t{1} << 20);
  EXPECT_EQ(bytesOf(4096, 4096, 2048), 0);
  setScratchLimit(before);
}

// Whole reads, whose weights lie along the inputs forward and across them backward.
TEST(CudaDigitReads, Property36_HaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  constexpr int64_t kSamples = 1030;
  for (const int bits : {24, 16}) {
    TileConfig config = singleConfig();
    for (IOParameters *io : {&config.forward, &config.backward}) io->weight_bits = bits;
    config.forward.out_bound = 1.0f;  // some are read again
    std::vector<std::vector<float>> reads[2];
    for (const Context &context : {cpuContext(), gpuContext()}) {
      Tile tile(1411, 1450, config, 5, 2, context);
      tile.setWeights(DeviceMatrix(context, randomBatch(1411, 1450, 1, 5).xView()).view());
      const Batch batch = randomBatch(kSamples, 1450, 1411, 3);
      const DeviceBatch on(context, batch);
      DeviceMatrix y(context, kSamples, 1411), dx(context, kSamples, 1450);
      tile.forward(on.x.view(), y.view());
      tile.backward(on.d.view(), dx.view());
      auto &of = reads[context.onCpu() ? 0 : 1];
      of = {y.host(context), dx.host(context)};
    }
    EXPECT_TRUE(sameBits(reads[0][0], reads[1][0])) << bits << " bits, forward";
    EXPECT_TRUE(sameBits(reads[0][1], reads[1][1])) << bits << " bits, backward";
  }
}

}  // namespace
}  // namespace pulsora
