#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "linalg/gemm.h"
#include "linalg/math_util.h"
#include "periphery/line_formulas.h"

// Reads on the GPU, and the matrix products behind them.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

TEST(CudaTile, Property36_ReadsAgreeToRoundingWithCublas) {
  PULSORA_REQUIRE_GPU();
  for (const TileConfig &config : {singleConfig(), lrttConfig()}) {
    TileConfig smooth = config;
    for (IOParameters *io : {&smooth.forward, &smooth.backward}) {
      io->inp_res = io->out_res =
          0.0f;  // a converter would turn a difference of rounding into one of a step
      io->out_noise = 0.1f;
      io->bound_management = BoundManagement::None;
    }
    const Course cpu = train(cpuContext(), smooth, 1);
    const Course gpu = train(gpuContext(), smooth, 1);
    for (size_t r = 0; r < 2; ++r) {
      for (size_t i = 0; i < cpu.results[r].size(); ++i) {
        ASSERT_NEAR(cpu.results[r][i], gpu.results[r][i], 2e-5)
            << "result " << r << ", element " << i;
      }
    }
  }
}

/// How many loads of lines lie up to the junction, beyond it, and where far cells deliver nothing.
std::vector<int> countLoads(MatrixView<const float> weights, const Batch &batch, float gw) {
  std::vector<int> counts(3);
  const MatrixView<const float> x = batch.xView();
  for (int64_t i = 0; i < x.rows; ++i) {
    float largest = 0.0f;
    for (int64_t j = 0; j < x.cols; ++j) largest = std::fmax(largest, std::fabs(x(i, j)));
    for (int64_t l = 0; l < weights.rows; ++l) {
      float sum = 0.0f;
      for (int64_t j = 0; j < x.cols; ++j) sum += std::fabs(weights(l, j) * x(i, j)) / largest;
      const float load = sum * static_cast<float>(x.cols) / gw;
      ++counts[load <= kWireJunction ? 0 : (wireDrop(load).everywhere > 0.0f ? 2 : 1)];
    }
  }
  return counts;
}

// Weights are set, because weights of 0 leave wires without a load.
TEST(CudaTile, Property36_PoorWiresHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  constexpr int64_t kRows = 45;
  constexpr int64_t kCols = 70;
  const Batch batch = randomBatch(33, kCols, kRows, 4);
  const Batch weights = randomBatch(kRows, kCols, 1, 5);
  std::vector<int> counts(3);
  for (const float gw : {1000.0f, 100.0f, 10.0f}) {
    const std::vector<int> here = countLoads(weights.xView(), batch, gw);
    for (size_t i = 0; i < 3; ++i) counts[i] += here[i];
    for (const MvType passes : {MvType::OnePass, MvType::PosNegSeparateDigitalSum}) {
      SCOPED_TRACE(message("wire of ", gw, ", passes ", static_cast<int>(passes)));
      TileConfig config = idealConfig();
      for (IOParameters *io : {&config.forward, &config.backward}) {
        io->mv_type = passes;
        io->ir_drop = 1.0f;
        io->ir_drop_gw_div_gmax = gw;
        io->out_res = 0.0f;
      }
      std::vector<std::vector<float>> results[2];
      for (const Context &context : {cpuContext(), reproducibleGpu()}) {
        Tile tile(kRows, kCols, config, 5, 2, context);
        tile.setWeights(DeviceMatrix(context, weights.xView()).view());
        const DeviceBatch on(context, batch);
        DeviceMatrix y(context, batch.samples, kRows);
        DeviceMatrix dx(context, batch.samples, kCols);
        tile.forward(on.x.view(), y.view());
        tile.backward(on.d.view(), dx.view());
        results[context.onCpu() ? 0 : 1] = {y.host(context), dx.host(context)};
      }
      for (size_t r = 0; r < 2; ++r) {
        ASSERT_TRUE(sameBits(results[0][r], results[1][r])) << "result " << r;
      }
    }
  }
  for (int count : counts) EXPECT_GT(count, 100);
}

// Both ways of repeating reads on the GPU: row by row in small arrays, and by the whole grid.
// Without noise and steps, a row at the edge of the ADC's range gives the same on either side of
// it.
TEST(CudaTile, Property36_RepeatedReadsAgreeToRounding) {
  PULSORA_REQUIRE_GPU();
  TileConfig config = singleConfig();
  for (IOParameters *io : {&config.forward, &config.backward}) {
    io->inp_res = io->out_res = io->out_noise = 0.0f;
    io->out_bound = 0.5f;
    io->bm_backward = true;
  }
  struct Shape {
    int64_t rows, cols, samples;
  };
  for (const Shape &shape :
       {Shape{3, 5, 4}, Shape{45, 70, 9}, Shape{300, 257, 64}, Shape{17, 2000, 33},
        Shape{2000, 9, 33}, Shape{601, 700, 64}, Shape{20, 1100, 600}, Shape{700, 33, 600}}) {
    SCOPED_TRACE(message(shape.rows, " x ", shape.cols));
    const Batch batch = randomBatch(shape.samples, shape.cols, shape.rows, 4);
    const Batch weights = randomBatch(shape.rows, shape.cols, 1, 5);
    std::vector<std::vector<float>> results[2];
    for (const Context &context : {cpuContext(), gpuContext()}) {
      Tile tile(shape.rows, shape.cols, config, 5, 2, context);
      const DeviceMatrix w(context, weights.xView());
      tile.setWeights(w.view());
      const DeviceBatch on(context, batch);
      DeviceMatrix y(context, shape.samples, shape.rows);
      DeviceMatrix dx(context, shape.samples, shape.cols);
      tile.forward(on.x.view(), y.view());
      tile.backward(on.d.view(), dx.view());
      results[context.onCpu() ? 0 : 1] = {y.host(context), dx.host(context)};
    }
    for (size_t r = 0; r < 2; ++r) {
      for (size_t i = 0; i < results[0][r].size(); ++i) {
        const float expected = results[0][r][i];
        ASSERT_NEAR(expected, results[1][r][i], 1e-4f + 1e-4f * std::fabs(expected))
            << "result " << r << ", element " << i;
      }
    }
  }
}

/// An adapter whose second array is not zero. Without steps a row at the edge of the range of an
/// ADC gives the same on either side of it.
TileConfig smoothLrtt(bool narrow, int rank) {
  return lrttConfig([&](Parts &c) {
    c.lrtt.rank = rank;
    c.lrtt.lora_alpha = 1.0f;
    c.lrtt.visible = makeParams("SoftBounds");
    for (IOParameters *io : {&c.forward, &c.backward}) {
      io->inp_res = io->out_res = 0.0f;
      io->out_noise = narrow ? 0.0f : 0.1f;
      io->out_bound = narrow ? 0.5f : 20.0f;
      io->bm_backward = true;
    }
  });
}

TEST(CudaTile, Property36_InjectedReadsAgreeToRounding) {
  PULSORA_REQUIRE_GPU();
  struct Shape {
    int64_t rows, cols, samples;
    int rank;
  };
  // The fifth shape has more blocks than a GPU holds at a time. Later shapes are too large for one
  // launch: a block for each row, then a warp for each row with weights that exceed a block's
  // memory in lines, in inputs, in both.
  for (const Shape &shape :
       {Shape{33, 70, 9, 4}, Shape{40, 50, 1, 3}, Shape{300, 257, 64, 16}, Shape{70, 1500, 33, 8},
        Shape{2000, 40, 400, 8}, Shape{1100, 1100, 61, 8}, Shape{300, 400, 200, 40},
        Shape{40, 1100, 601, 16}, Shape{70, 700, 515, 20}}) {
    for (const bool narrow : {false, true}) {
      SCOPED_TRACE(message(shape.rows, " x ", shape.cols, narrow ? ", narrow" : ""));
      const Batch batch = randomBatch(shape.samples, shape.cols, shape.rows, 4);
      const Batch weights = randomBatch(shape.rows, shape.cols, 1, 5);
      const Batch factors = randomBatch(shape.rank, shape.cols, shape.rows, 6);
      std::vector<std::vector<float>> results[2];
      for (const Context &context : {cpuContext(), gpuContext()}) {
        Tile tile(shape.rows, shape.cols, smoothLrtt(narrow, shape.rank), 5, 2, context);
        const DeviceMatrix w(context, weights.xView());
        const DeviceMatrix b(context, factors.xView());
        const DeviceMatrix a(context, rowMajor(factors.d.data(), shape.rows, int64_t{shape.rank}));
        tile.setWeights(w.view());
        tile.setArray("fast_a", a.view());
        tile.setArray("fast_b", b.view());
        const DeviceBatch on(context, batch);
        DeviceMatrix y(context, shape.samples, shape.rows);
        DeviceMatrix dx(context, shape.samples, shape.cols);
        for (int n = 0; n < 2; ++n) {  // twice: nothing is left behind in scratch memory
          tile.forward(on.x.view(), y.view());
          tile.backward(on.d.view(), dx.view());
        }
        results[context.onCpu() ? 0 : 1] = {y.host(context), dx.host(context)};
      }
      for (size_t r = 0; r < 2; ++r) {
        for (size_t i = 0; i < results[0][r].size(); ++i) {
          const float expected = results[0][r][i];
          ASSERT_NEAR(expected, results[1][r][i], 2e-4f + 2e-4f * std::fabs(expected))
              << "result " << r << ", element " << i;
        }
      }
    }
  }
}

/// Settings of reads whose product is in integers.
std::vector<std::function<void(IOParameters &)>> integerSettings() {
  const auto wires = [](IOParameters &io) {
    io.ir_drop = 1.0f;
    io.ir_drop_gw_div_gmax = 100.0f;
    io.v_offset_std = 0.1f;
    io.r_series = 0.02f;
  };
  return {[](IOParameters &) {},
          [](IOParameters &io) { io.weight_bits = 16; },
          [](IOParameters &io) { io.inp_res = 1.0f / 20000.0f; },
          [](IOParameters &io) {
            io.inp_res = 1.0f / 20000.0f;
            io.weight_bits = 16;
          },
          [](IOParameters &io) { io.out_bound = 1.0f; },
          [](IOParameters &io) { io.inp_sto_round = io.out_sto_round = true; },
          [](IOParameters &io) { io.inp_asymmetry = 0.2f; },
          [](IOParameters &io) {
            io.w_noise = 0.05f;
            io.w_noise_type = WeightNoiseType::AdditiveConstant;
          },
          wires,
          [=](IOParameters &io) {
            wires(io);
            io.mv_type = MvType::PosNegSeparateDigitalSum;
            io.inp_asymmetry = 0.1f;
            io.out_bound = 2.0f;
            io.w_noise = 0.02f;
            io.w_noise_type = WeightNoiseType::PcmRead;
            io.w_read_asymmetry_dtod = 0.1f;
            io.out_nonlinearity = 0.3f;
          }};
}

struct ReadShape {
  int64_t rows, cols, samples;
};

void expectReadsInIntegersOfTheCpu(const ReadShape &shape,
                                   const std::function<void(IOParameters &)> &set) {
  const Batch batch = randomBatch(shape.samples, shape.cols, shape.rows, 4);
  const Batch weights = randomBatch(shape.rows, shape.cols, 1, 5);
  TileConfig config = singleConfig();
  for (IOParameters *io : {&config.forward, &config.backward}) {
    io->weight_bits = 24;
    set(*io);
    io->bm_backward = true;
  }
  std::vector<std::vector<float>> results[2];
  for (const Context &context : {cpuContext(), gpuContext()}) {
    Tile tile(shape.rows, shape.cols, config, 5, 2, context);
    tile.setWeights(DeviceMatrix(context, weights.xView()).view());
    const DeviceBatch on(context, batch);
    DeviceMatrix y(context, shape.samples, shape.rows);
    DeviceMatrix dx(context, shape.samples, shape.cols);
    tile.forward(on.x.view(), y.view());
    tile.backward(on.d.view(), dx.view());
    results[context.onCpu() ? 0 : 1] = {y.host(context), dx.host(context)};
  }
  for (size_t r = 0; r < 2; ++r)
    ASSERT_TRUE(sameBits(results[0][r], results[1][r])) << "result " << r;
}

// With the default choice of products. Shapes lie on both sides of the borders of a block.
TEST(CudaTile, Property36_ReadsInIntegersHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  const auto settings = integerSettings();
  for (const ReadShape &shape :
       {ReadShape{3, 5, 4}, ReadShape{45, 70, 9}, ReadShape{64, 64, 32}, ReadShape{65, 129, 33},
        ReadShape{300, 257, 64}, ReadShape{17, 2000, 33}, ReadShape{6, 25, 4100},
        ReadShape{16, 150, 4133}, ReadShape{6, 25, 65537}}) {
    for (size_t i = 0; i < settings.size(); ++i) {
      SCOPED_TRACE(message(shape.rows, " x ", shape.cols, ", setting ", i));
      expectReadsInIntegersOfTheCpu(shape, settings[i]);
    }
  }
}

// So many short rows that a thread reads each.
TEST(CudaTile, Property36_ManyShortReadsInIntegersHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  const auto settings = integerSettings();
  for (const ReadShape &shape :
       {ReadShape{16, 40, 65536}, ReadShape{3, 131, 65600}, ReadShape{33, 26, 65537}}) {
    for (size_t i = 0; i < 5; ++i) {  // of 24 and 16 bits, levels of one byte and two, repeats
      SCOPED_TRACE(message(shape.rows, " x ", shape.cols, ", setting ", i));
      expectReadsInIntegersOfTheCpu(shape, settings[i]);
    }
  }
}

// Long rows, whose sums of 32 bits are moved on.
TEST(CudaTile, Property36_LongReadsInIntegersHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const float resolution : {1.0f / 126.0f, 1.0f / 20000.0f}) {
    for (const int bits : {24, 16}) {
      constexpr int64_t kCols = 40000;
      TileConfig config = singleConfig();
      config.forward.weight_bits = bits;
      config.forward.inp_res = resolution;
      Batch batch = randomBatch(3, kCols, 2, 4);
      for (float &v : batch.x) v = 1.0f;  // the largest sums
      std::vector<float> results[2];
      for (const Context &context : {cpuContext(), gpuContext()}) {
        Tile tile(2, kCols, config, 5, 2, context);
        std::vector<float> ones(2 * kCols, 1.0f);
        tile.setWeights(DeviceMatrix(context, rowMajor<const float>(ones.data(), 2, kCols)).view());
        const DeviceBatch on(context, batch);
        DeviceMatrix y(context, 3, 2);
        tile.forward(on.x.view(), y.view());
        results[context.onCpu() ? 0 : 1] = y.host(context);
      }
      ASSERT_TRUE(sameBits(results[0], results[1])) << bits << " bits, " << resolution;
    }
  }
}

// Reads, projections and transfers of an adapter, and the training that they lead to.
TEST(CudaTile, Property36_TrainingWithReadsInIntegersHasTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (TileConfig config : {singleConfig(), lrttConfig()}) {
    for (const int bits : {24, 16}) {
      config.forward.weight_bits = config.backward.weight_bits = bits;
      const Course cpu = train(cpuContext(), config, 6);
      const Course gpu = train(gpuContext(), config, 6);
      // The last result is the effective weight, with a product in floating point; the arrays that
      // it is made of are in the state.
      for (size_t r = 0; r + 1 < cpu.results.size(); ++r)
        ASSERT_TRUE(sameBits(cpu.results[r], gpu.results[r])) << bits << " bits, result " << r;
      ASSERT_TRUE(sameState(cpu.state, gpu.state)) << bits << " bits";
    }
  }
}

TEST(CudaProducts, EveryLayoutAgreesWithTheCpu) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  const auto transposedIf = [](bool t, auto view) { return t ? view.transposed() : view; };
  for (const int64_t m : {1, 5, 64, 130}) {
    for (const int64_t n : {1, 33, 128}) {
      for (const int64_t k : {0, 1, 7, 100}) {
        for (int layout = 0; layout < 8; ++layout) {
          const bool ta = layout & 1, tb = layout & 2, tc = layout & 4;
          const Batch values = randomBatch(1, m * k + 1, k * n + 1, 3);
          std::vector<float> c0(static_cast<size_t>(m * n), 0.5f);
          const auto a = transposedIf(ta, rowMajor(values.x.data(), ta ? k : m, ta ? m : k));
          const auto b = transposedIf(tb, rowMajor(values.d.data(), tb ? n : k, tb ? k : n));
          std::vector<float> expected = c0;
          const auto c = transposedIf(tc, rowMajor(expected.data(), tc ? n : m, tc ? m : n));
          reproducibleGemm(0.7f, a, b, 0.3f, c, 1, Isa::V2);
          const DeviceMatrix da(gpu, rowMajor<const float>(values.x.data(), 1, m * k + 1));
          const DeviceMatrix db(gpu, rowMajor<const float>(values.d.data(), 1, k * n + 1));
          for (const GpuProducts products : {GpuProducts::Single, GpuProducts::Reproducible}) {
            Context context = gpu;
            context.gpuProducts = products;
            DeviceMatrix dc(gpu, rowMajor<const float>(c0.data(), 1, m * n));
            MatrixView<const float> ga = a, gb = b;
            MatrixView<float> gc = c;
            ga.data = da.values.data();
            gb.data = db.values.data();
            gc.data = dc.values.data();
            gemm(context, 0.7f, ga, gb, 0.3f, gc);
            const std::vector<float> got = dc.host(gpu);
            if (products == GpuProducts::Reproducible) {
              ASSERT_TRUE(sameBits(expected, got))
                  << m << " " << n << " " << k << " layout " << layout;
            }
            for (size_t i = 0; i < got.size(); ++i) {
              ASSERT_NEAR(expected[i], got[i], 1e-5)
                  << m << " " << n << " " << k << " layout " << layout;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pulsora
