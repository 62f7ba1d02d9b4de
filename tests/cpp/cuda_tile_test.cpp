#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>

#include "core/gemm.h"
#include "cuda_test_util.h"
#include "math_util.h"

namespace RPU {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

using Change = std::function<void(TileConfig &)>;

TileConfig single(const Change &change = {}) {
  TileConfig config;
  config.device = makeParams("SoftBounds");
  if (change) change(config);
  return config;
}

TileConfig lrtt(const Change &change = {}) {
  TileConfig config;
  config.kind = TileConfig::Kind::LRTT;
  config.lrtt.rank = 4;
  config.lrtt.transfer_every = 20;
  config.lrtt.fast = makeParams("SoftBounds", {{"dw_min", Value(0.002)}});
  config.lrtt.visible = makeParams("ConstantStep");
  if (change) change(config);
  return config;
}

/// Results of a few training steps, and where they lead.
struct Course {
  std::vector<std::vector<float>> results;
  State state;
};

constexpr int64_t kRows = 45;
constexpr int64_t kCols = 70;

Course train(const Context &context, const TileConfig &config, int steps,
             const State *from = nullptr) {
  Tile tile(kRows, kCols, config, 5, 2, context);
  if (from) tile.loadState(*from);
  Course run;
  for (int n = 0; n < steps; ++n) {
    const Batch batch =
        trainingBatch(n % 2 ? 9 : 16, kCols, kRows, n % 3 == 0, static_cast<uint64_t>(n));
    const DeviceBatch on(context, batch);
    DeviceMatrix y(context, batch.samples, kRows);
    DeviceMatrix dx(context, batch.samples, kCols);
    tile.forward(on.x.view(), y.view());
    tile.backward(on.d.view(), dx.view());
    tile.update(on.x.view(), on.d.view(), 0.05f);
    tile.postUpdate(0.05f);
    run.results.push_back(y.host(context));
    run.results.push_back(dx.host(context));
  }
  DeviceMatrix w(context, kRows, kCols);
  tile.getWeights(w.view());
  run.results.push_back(w.host(context));
  run.state = tile.state();
  return run;
}

void expectSameRun(const TileConfig &config) {
  const Course cpu = train(cpuContext(), config, 6);
  const Course gpu = train(reproducibleGpu(), config, 6);
  for (size_t i = 0; i < cpu.results.size(); ++i)
    ASSERT_TRUE(sameBits(cpu.results[i], gpu.results[i])) << "result " << i;
  ASSERT_TRUE(sameState(cpu.state, gpu.state));
}

TEST(CudaTile, Property03PeripheryWithReproducibleProducts) {
  RPU_REQUIRE_GPU();
  const std::vector<std::pair<const char *, std::function<void(IOParameters &)>>> changes = {
      {"defaults", [](IOParameters &) {}},
      {"perfect", [](IOParameters &io) { io.is_perfect = true; }},
      {"rounds", [](IOParameters &io) { io.out_bound = 0.3f, io.bm_backward = true; }},
      {"worst case",
       [](IOParameters &io) {
         io.out_bound = 0.3f, io.bound_management = BoundManagement::IterativeWorstCase;
       }},
      {"stochastic",
       [](IOParameters &io) { io.inp_sto_round = io.out_sto_round = true, io.inp_noise = 0.02f; }},
      {"max", [](IOParameters &io) { io.noise_management = NoiseManagement::Max; }},
      {"constant",
       [](IOParameters &io) {
         io.noise_management = NoiseManagement::Constant, io.nm_thres = 2.0f;
       }},
      {"average",
       [](IOParameters &io) {
         io.noise_management = NoiseManagement::AverageAbsMax, io.nm_decay = 0.1f;
       }},
      {"sums", [](IOParameters &io) { io.noise_management = NoiseManagement::AbsMaxNPSum; }},
      {"two passes",
       [](IOParameters &io) { io.mv_type = MvType::PosNegSeparate, io.out_bound = 0.5f; }},
      {"digital sum", [](IOParameters &io) { io.mv_type = MvType::PosNegSeparateDigitalSum; }},
      {"weight noise",
       [](IOParameters &io) {
         io.w_noise = 0.02f, io.w_noise_type = WeightNoiseType::AdditiveConstant;
       }},
      {"pcm noise",
       [](IOParameters &io) { io.w_noise = 0.02f, io.w_noise_type = WeightNoiseType::PcmRead; }},
      {"wire", [](IOParameters &io) { io.ir_drop = 1.0f, io.ir_drop_gw_div_gmax = 500.0f; }},
      {"offsets",
       [](IOParameters &io) { io.v_offset_std = 0.05f, io.r_series = 0.01f, io.out_bound = 0.5f; }},
      {"nonlinear",
       [](IOParameters &io) {
         io.out_nonlinearity = 0.5f, io.out_nonlinearity_std = 0.1f, io.out_asymmetry = 0.1f;
       }},
      {"spread",
       [](IOParameters &io) {
         io.out_noise_std = 0.3f, io.inp_asymmetry = 0.05f, io.out_scale = 0.5f;
       }},
  };
  for (const auto &[name, change] : changes) {
    SCOPED_TRACE(name);
    TileConfig config = single();
    change(config.forward);
    change(config.backward);
    expectSameRun(config);
    if (HasFailure()) return;
  }
}

TEST(CudaTile, Property03IdealWeights) {
  RPU_REQUIRE_GPU();
  expectSameRun(single([](TileConfig &c) { c.kind = TileConfig::Kind::Ideal; }));
}

TEST(CudaTile, Property03EverySettingOfTheAdapter) {
  RPU_REQUIRE_GPU();
  const std::vector<std::pair<const char *, Change>> changes = {
      {"defaults", [](TileConfig &) {}},
      {"exact projection", [](TileConfig &c) { c.lrtt.projection = Projection::Exact; }},
      {"reused reads", [](TileConfig &c) { c.lrtt.projection = Projection::Reuse; }},
      {"not injected", [](TileConfig &c) { c.lrtt.forward_inject = false; }},
      {"shared converters", [](TileConfig &c) { c.lrtt.inject_io = InjectIo::Shared; }},
      {"swapped", [](TileConfig &c) { c.lrtt.swap_xd = true; }},
      {"one train", [](TileConfig &c) { c.lrtt.transfer_mode = TransferMode::Single; }},
      {"digital transfer", [](TileConfig &c) { c.lrtt.transfer_mode = TransferMode::Exact; }},
      {"analog transfer read", [](TileConfig &c) { c.lrtt.transfer_read = TransferRead::Analog; }},
      {"mini-batches",
       [](TileConfig &c) { c.lrtt.units_in_mbatch = true, c.lrtt.transfer_every = 2; }},
      {"chunks", [](TileConfig &c) { c.lrtt.rank_chunk = 2, c.lrtt.rank_offset = 1; }},
      {"many trains",
       [](TileConfig &c) {
         c.lrtt.visible = makeParams("SoftBounds", {{"dw_min", Value(1e-5)}});
         c.lrtt.rank_chunk = 2, c.lrtt.rank_offset = 1;
       }},
      {"clipped trains",
       [](TileConfig &c) {
         c.lrtt.visible = makeParams("SoftBounds", {{"dw_min", Value(1e-5)}});
         c.lrtt.transfer_max_trains = 2, c.lrtt.swap_xd = true;
       }},
      {"managed trains",
       [](TileConfig &c) {
         c.lrtt.transfer_use_update_management = c.lrtt.transfer_use_bl_management = true;
       }},
      {"negative transfer", [](TileConfig &c) { c.lrtt.transfer_lr = {false, -0.5f}; }},
      {"two-pass pulses", [](TileConfig &c) { c.update.pulse_type = PulseType::Stochastic; }},
      {"mean counts", [](TileConfig &c) { c.update.pulse_type = PulseType::MeanCount; }},
      {"no pulses", [](TileConfig &c) { c.update.pulse_type = PulseType::NoneWithDevice; }},
      {"write noise",
       [](TileConfig &c) {
         c.lrtt.visible = makeParams("ConstantStep", {{"write_noise_std", Value(1.0)}});
         c.lrtt.rank_chunk = 1;
       }},
      {"orthogonal", [](TileConfig &c) { c.lrtt.reinit = Reinit::Orthogonal; }},
      {"keep B", [](TileConfig &c) { c.lrtt.reinit = Reinit::KeepB; }},
      {"decay", [](TileConfig &c) { c.lrtt.reinit = Reinit::Decay; }},
      {"no re-init", [](TileConfig &c) { c.lrtt.reinit = Reinit::None; }},
      {"pulsed re-init", [](TileConfig &c) { c.lrtt.reinit_write = ReinitWrite::Pulsed; }},
      {"rank 0", [](TileConfig &c) { c.lrtt.rank = 0; }},
      {"rank 16", [](TileConfig &c) { c.lrtt.rank = 16; }},
  };
  for (const auto &[name, change] : changes) {
    SCOPED_TRACE(name);
    expectSameRun(lrtt(change));
    if (HasFailure()) return;
  }
}

TEST(CudaTile, ReadsAgreeToRoundingWithCublas) {
  RPU_REQUIRE_GPU();
  for (const TileConfig &config : {single(), lrtt()}) {
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

// Both ways of repeating reads on the GPU: row by row in small arrays, and by the whole grid.
// Without noise and steps, a row at the edge of the ADC's range gives the same on either side of
// it.
TEST(CudaTile, RepeatedReadsAgreeToRounding) {
  RPU_REQUIRE_GPU();
  TileConfig config = single();
  for (IOParameters *io : {&config.forward, &config.backward}) {
    io->inp_res = io->out_res = io->out_noise = 0.0f;
    io->out_bound = 0.5f;
    io->bm_backward = true;
  }
  struct Shape {
    int64_t rows, cols, samples;
  };
  for (const Shape &shape : {Shape{3, 5, 4}, Shape{45, 70, 9}, Shape{300, 257, 64},
                             Shape{17, 2000, 33}, Shape{2000, 9, 33}, Shape{601, 700, 64}}) {
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
  return lrtt([&](TileConfig &c) {
    c.lrtt.rank = rank;
    c.lrtt.lora_alpha = {false, 1.0f};
    c.lrtt.visible = makeParams("SoftBounds");
    for (IOParameters *io : {&c.forward, &c.backward}) {
      io->inp_res = io->out_res = 0.0f;
      io->out_noise = narrow ? 0.0f : 0.1f;
      io->out_bound = narrow ? 0.5f : 20.0f;
      io->bm_backward = true;
    }
  });
}

TEST(CudaTile, InjectedReadsAgreeToRounding) {
  RPU_REQUIRE_GPU();
  struct Shape {
    int64_t rows, cols, samples;
    int rank;
  };
  // The last but one has more blocks than a GPU holds at a time; the last is beyond what is read in
  // one launch.
  for (const Shape &shape :
       {Shape{33, 70, 9, 4}, Shape{40, 50, 1, 3}, Shape{300, 257, 64, 16}, Shape{70, 1500, 33, 8},
        Shape{2000, 40, 600, 8}, Shape{1100, 1100, 61, 8}}) {
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
        tile.setArray(ArrayId::FastA, a.view());
        tile.setArray(ArrayId::FastB, b.view());
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

/// Multiples of 1 / steps in [-1, 1].
void coarsen(std::vector<float> &values, float steps) {
  for (float &value : values) value = std::rint(value * steps) / steps;
}

// With inputs and factors of few bits a product has the same bits in any order of summation, and
// so have the updates that follow from it: also those that join projections and trains.
TEST(CudaTile, Property03UpdatesByDefaultProducts) {
  RPU_REQUIRE_GPU();
  for (const bool sparse : {false, true}) {
    for (const bool swap : {false, true}) {
      for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic}) {
        SCOPED_TRACE(message(sparse ? "sparse " : "dense ", swap ? "swapped" : ""));
        const TileConfig config = lrtt([&](TileConfig &c) {
          c.lrtt.transfer_every = 0;
          c.lrtt.swap_xd = swap;
          c.update.pulse_type = type;
          for (IOParameters *io : {&c.forward, &c.backward}) {
            io->inp_res = io->out_res = io->inp_bound = io->out_bound = 0.0f;
            io->noise_management = NoiseManagement::None;
            io->bound_management = BoundManagement::None;
            io->out_noise = 0.02f;
          }
        });
        Batch batch = trainingBatch(64, kCols, kRows, false, 3);
        coarsen(batch.x, 8.0f);
        coarsen(batch.d, 8.0f);
        if (sparse) {
          for (float &d : batch.d) d *= 1.0f / 128.0f;
        }
        Batch factors = randomBatch(4, swap ? kRows : kCols, swap ? kCols : kRows, 6);
        coarsen(factors.x, 16.0f);
        coarsen(factors.d, 16.0f);
        State states[2];
        for (const Context &context : {cpuContext(), gpuContext()}) {
          Tile tile(kRows, kCols, config, 5, 2, context);
          const DeviceMatrix b(context, rowMajor(factors.x.data(), 4, swap ? kRows : kCols));
          const DeviceMatrix a(context, rowMajor(factors.d.data(), swap ? kCols : kRows, 4));
          tile.setArray(ArrayId::FastA, a.view());
          tile.setArray(ArrayId::FastB, b.view());
          const DeviceBatch on(context, batch);
          // In two pieces, of which the second is projected with the snapshot.
          for (const int64_t start : {0, 24}) {
            const int64_t count = start == 0 ? 24 : 40;
            tile.update(on.x.view().block(start, 0, count, kCols),
                        on.d.view().block(start, 0, count, kRows), 0.05f);
          }
          tile.postUpdate(0.05f);
          states[context.onCpu() ? 0 : 1] = tile.state();
        }
        EXPECT_TRUE(sameState(states[0], states[1]));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CudaTile, StatesGoFromOneBackendToTheOther) {
  RPU_REQUIRE_GPU();
  const TileConfig config = lrtt();
  const Course start = train(cpuContext(), config, 3);
  const Course cpu = train(cpuContext(), config, 4, &start.state);
  const Course gpu = train(reproducibleGpu(), config, 4, &start.state);
  EXPECT_TRUE(sameState(cpu.state, gpu.state));
  const Course back = train(cpuContext(), config, 2, &gpu.state);
  const Course direct = train(cpuContext(), config, 2, &cpu.state);
  EXPECT_TRUE(sameState(back.state, direct.state));
}

TEST(CudaTile, InputsThatAreNotFiniteChangeNothing) {
  RPU_REQUIRE_GPU();
  const Context gpu = gpuContext();
  for (const TileConfig &config :
       {single(), lrtt(), single([](TileConfig &c) { c.update.pulse_type = PulseType::None; }),
        single([](TileConfig &c) { c.kind = TileConfig::Kind::Ideal; })}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (const bool inX : {false, true}) {
        Tile tile(kRows, kCols, config, 5, 2, gpu);
        const DeviceBatch good(gpu, randomBatch(4, kCols, kRows, 1));
        tile.update(good.x.view(), good.d.view(), 0.05f);
        const State before = tile.state();
        Batch batch = randomBatch(4, kCols, kRows, 2);
        (inX ? batch.x : batch.d)[5] = bad;
        const DeviceBatch on(gpu, batch);
        tile.update(on.x.view(), on.d.view(), 0.05f);
        tile.update(good.x.view(), good.d.view(), 0.05f);  // skipped as well: nobody was told yet
        EXPECT_THROW(tile.state(), InputError);
        const State after = tile.state();  // reported once
        for (const auto &[name, tensor] : before.tensors) {
          if (name.find("snapshot") != std::string::npos) continue;  // retaken for each mini-batch
          EXPECT_EQ(tensor.bytes, after.tensors.at(name).bytes) << name;
        }
        tile.update(good.x.view(), good.d.view(), 0.05f);
        EXPECT_FALSE(sameState(after, tile.state()));
      }
    }
    Tile tile(kRows, kCols, config, 5, 2, gpu);
    std::vector<float> weights(static_cast<size_t>(kRows * kCols), kNaN);
    const DeviceMatrix on(gpu, rowMajor<const float>(weights.data(), kRows, kCols));
    EXPECT_THROW(tile.setWeights(on.view()), InputError);
  }
}

TEST(CudaProducts, EveryLayoutAgreesWithTheCpu) {
  RPU_REQUIRE_GPU();
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
          for (const Products products : {Products::Blas, Products::Reproducible}) {
            Context context = gpu;
            context.cudaProducts = products;
            DeviceMatrix dc(gpu, rowMajor<const float>(c0.data(), 1, m * n));
            MatrixView<const float> ga = a, gb = b;
            MatrixView<float> gc = c;
            ga.data = da.values.data();
            gb.data = db.values.data();
            gc.data = dc.values.data();
            gemm(context, 0.7f, ga, gb, 0.3f, gc);
            const std::vector<float> got = dc.host(gpu);
            if (products == Products::Reproducible) {
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
}  // namespace RPU
