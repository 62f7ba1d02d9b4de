#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "cuda/cuda_test_util.h"
#include "tile/tile_test_util.h"

// Compares training on a GPU with training on the CPU.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

void expectSameRun(const TileConfig &config) {
  const Course cpu = train(cpuContext(), config, 6);
  const Course gpu = train(reproducibleGpu(), config, 6);
  for (size_t i = 0; i < cpu.results.size(); ++i)
    ASSERT_TRUE(sameBits(cpu.results[i], gpu.results[i])) << "result " << i;
  ASSERT_TRUE(sameState(cpu.state, gpu.state));
}

TEST(CudaTile, Property36_PeripheryWithReproducibleProducts) {
  PULSORA_REQUIRE_GPU();
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
      {"bits",
       [](IOParameters &io) {
         io.mv_type = MvType::BitSerial, io.bound_management = BoundManagement::None;
       }},
      {"slices",
       [](IOParameters &io) {
         io.mv_type = MvType::BitSerial, io.input_slice_bits = 2;
         io.bound_management = BoundManagement::None;
         io.noise_management = NoiseManagement::AverageAbsMax;
         io.inp_sto_round = io.out_sto_round = true;
       }},
      {"bits in one sum",
       [](IOParameters &io) {
         io.mv_type = MvType::BitSerialAnalogSum, io.bound_management = BoundManagement::None;
         io.out_sto_round = true, io.out_asymmetry = 0.1f;
       }},
      {"weight noise",
       [](IOParameters &io) {
         io.w_noise = 0.02f, io.w_noise_type = WeightNoiseType::AdditiveConstant;
       }},
      {"pcm noise",
       [](IOParameters &io) { io.w_noise = 0.02f, io.w_noise_type = WeightNoiseType::PcmRead; }},
      {"wire", [](IOParameters &io) { io.ir_drop = 1.0f, io.ir_drop_gw_div_gmax = 500.0f; }},
      {"wires near the junction",
       [](IOParameters &io) { io.ir_drop = 1.0f, io.ir_drop_gw_div_gmax = 50.0f; }},
      {"poor wires", [](IOParameters &io) { io.ir_drop = 1.0f, io.ir_drop_gw_div_gmax = 5.0f; }},
      {"poor wires in two passes",
       [](IOParameters &io) {
         io.mv_type = MvType::PosNegSeparateDigitalSum, io.w_read_asymmetry_dtod = 0.1f;
         io.ir_drop = 1.0f, io.ir_drop_gw_div_gmax = 5.0f, io.r_series = 0.01f;
       }},
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
    TileConfig config = singleConfig();
    change(config.forward);
    change(config.backward);
    expectSameRun(config);
    if (HasFailure()) return;
  }
}

TEST(CudaTile, Property36_IdealWeights) {
  PULSORA_REQUIRE_GPU();
  expectSameRun(idealConfig());
}

TEST(CudaTile, Property36_EveryKindAndVariant) {
  PULSORA_REQUIRE_GPU();
  for (const std::string &kind : kinds()) {
    SCOPED_TRACE(kind);
    expectSameRun(configOf(kind));
    if (HasFailure()) return;
  }
}

/// The state after mini-batches in which a thread of a GPU follows a chopper over three samples.
State choppedInLongBatches(const Context &context, const std::string &buffer) {
  constexpr int64_t kSamples = 2100;
  const TileConfig config = configOf(
      "transfer", {{"buffer", Value(buffer)},
                   {"fast", Value(Value::List{Value(Value::Map{{"model", "SoftBounds"}})})},
                   {"units_in_mbatch", Value(false)},
                   {"transfer_every", Value(3)},
                   {"in_chop_prob", Value(0.3)},
                   {"out_chop_prob", Value(0.2)}});
  Tile tile(5, 7, config, 5, 2, context);
  for (uint64_t step = 0; step < 2; ++step) {
    const DeviceBatch on(context, trainingBatch(kSamples, 7, 5, true, step));
    tile.update(on.x.view(), on.d.view(), 0.05f);
  }
  return tile.state();
}

TEST(CudaTile, Property36_ChoppersOfManySamples) {
  PULSORA_REQUIRE_GPU();
  for (const char *buffer : {"chopped", "dynamic"}) {
    EXPECT_TRUE(sameState(choppedInLongBatches(cpuContext(), buffer),
                          choppedInLongBatches(gpuContext(), buffer)))
        << buffer;
  }
}

/// The state after a tile has followed a digital weight for some steps.
State followed(const Context &context, const std::string &kind) {
  const TileConfig config = configOf(kind, {{"digital_weight", true}, {"transfer_every", 1}});
  Tile tile(kCourseRows, kCourseCols, config, 5, 2, context);
  for (uint64_t step = 0; step < 6; ++step) {
    Batch batch = randomBatch(kCourseRows, kCourseCols, 1, step);
    for (float &value : batch.x) value *= 0.3f;
    const DeviceMatrix master(context, batch.xView());
    tile.follow(master.view());
  }
  return tile.state();
}

TEST(CudaTile, Property36_CellsFollowADigitalWeight) {
  PULSORA_REQUIRE_GPU();
  for (const std::string &kind : kinds()) {
    if (kind.find("mixed_precision") != 0) continue;
    SCOPED_TRACE(kind);
    EXPECT_TRUE(sameState(followed(cpuContext(), kind), followed(reproducibleGpu(), kind)));
  }
}

TEST(CudaTile, AMasterThatIsNotFiniteChangesNothing) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = reproducibleGpu();
  Tile tile(kCourseRows, kCourseCols, configOf("mixed_precision", {{"transfer_every", 1}}), 5, 2,
            gpu);
  Batch batch = randomBatch(kCourseRows, kCourseCols, 1, 3);
  batch.x[7] = std::numeric_limits<float>::infinity();
  const DeviceMatrix master(gpu, batch.xView());
  tile.follow(master.view());
  EXPECT_THROW(tile.state(), InputError);
  EXPECT_EQ(*tile.statistics().at("pulses").integer(), 0);
}

TEST(CudaTile, Property36_EverySettingOfTheAdapter) {
  PULSORA_REQUIRE_GPU();
  const std::vector<std::pair<const char *, Change>> changes = {
      {"defaults", [](Parts &) {}},
      {"exact projection", [](Parts &c) { c.lrtt.projection = Projection::Exact; }},
      {"reused reads", [](Parts &c) { c.lrtt.projection = Projection::Reuse; }},
      {"not injected", [](Parts &c) { c.lrtt.forward_inject = false; }},
      {"accumulated", [](Parts &c) { c.lrtt.ab_update = FactorUpdate::Accumulated; }},
      {"shared converters", [](Parts &c) { c.lrtt.inject_io = InjectIo::Shared; }},
      {"swapped", [](Parts &c) { c.lrtt.swap_xd = true; }},
      {"one train", [](Parts &c) { c.lrtt.transfer_mode = TransferMode::Single; }},
      {"verified transfer",
       [](Parts &c) { c.lrtt.transfer_mode = TransferMode::Verified, c.lrtt.transfer_rounds = 2; }},
      {"write and verify",
       [](Parts &c) {
         c.lrtt.transfer_mode = TransferMode::WriteVerify, c.lrtt.reinit = Reinit::Decay;
         c.lrtt.visible = makeParams("SoftBounds", {{"write_noise_std", Value(20.0)}});
       }},
      {"write and verify, swapped",
       [](Parts &c) {
         c.lrtt.transfer_mode = TransferMode::WriteVerify, c.lrtt.reinit = Reinit::KeepB;
         c.lrtt.swap_xd = true, c.lrtt.chopper = Chopper::Reinit;
       }},
      {"matched scales", [](Parts &c) { c.lrtt.ab_lr_scale = LrScale::Matched; }},
      {"digital transfer", [](Parts &c) { c.lrtt.transfer_mode = TransferMode::Exact; }},
      {"analog transfer read", [](Parts &c) { c.lrtt.transfer_read = TransferRead::Analog; }},
      {"mini-batches", [](Parts &c) { c.lrtt.units_in_mbatch = true, c.lrtt.transfer_every = 2; }},
      {"chunks", [](Parts &c) { c.lrtt.rank_chunk = 2, c.lrtt.rank_offset = 1; }},
      {"many trains",
       [](Parts &c) {
         c.lrtt.visible = makeParams("SoftBounds", {{"dw_min", Value(1e-5)}});
         c.lrtt.rank_chunk = 2, c.lrtt.rank_offset = 1;
       }},
      {"clipped trains",
       [](Parts &c) {
         c.lrtt.visible = makeParams("SoftBounds", {{"dw_min", Value(1e-5)}});
         c.lrtt.transfer_max_trains = 2, c.lrtt.swap_xd = true;
       }},
      {"managed trains",
       [](Parts &c) {
         c.lrtt.transfer_use_update_management = c.lrtt.transfer_use_bl_management = true;
       }},
      {"negative transfer", [](Parts &c) { c.lrtt.transfer_lr = -0.5f; }},
      {"two-pass pulses", [](Parts &c) { c.update.pulse_type = PulseType::Stochastic; }},
      {"mean counts", [](Parts &c) { c.update.pulse_type = PulseType::MeanCount; }},
      {"no pulses", [](Parts &c) { c.update.pulse_type = PulseType::NoneWithDevice; }},
      {"write noise",
       [](Parts &c) {
         c.lrtt.visible = makeParams("ConstantStep", {{"write_noise_std", Value(1.0)}});
         c.lrtt.rank_chunk = 1;
       }},
      {"orthogonal", [](Parts &c) { c.lrtt.reinit = Reinit::Orthogonal; }},
      {"keep B", [](Parts &c) { c.lrtt.reinit = Reinit::KeepB; }},
      {"decay", [](Parts &c) { c.lrtt.reinit = Reinit::Decay; }},
      {"no re-init", [](Parts &c) { c.lrtt.reinit = Reinit::None; }},
      {"pulsed re-init", [](Parts &c) { c.lrtt.reinit_write = ReinitWrite::Pulsed; }},
      {"references", [](Parts &c) { c.lrtt.reference = FastReference::SymmetricPoint; }},
      {"references by pulses",
       [](Parts &c) {
         c.lrtt.reference = FastReference::SymmetricPoint;
         c.lrtt.reference_pulses = 20;
         c.lrtt.fast = makeParams("SoftBounds",
                                  {{"up_down_dtod", Value(0.3)}, {"write_noise_std", Value(1.0)}});
       }},
      {"choppers",
       [](Parts &c) {
         c.lrtt.chopper = Chopper::Reinit, c.lrtt.reinit = Reinit::Decay;
         c.lrtt.reference = FastReference::SymmetricPoint;
       }},
      {"choppers, accumulated and pulsed",
       [](Parts &c) {
         c.lrtt.chopper = Chopper::Reinit, c.lrtt.reinit = Reinit::KeepB;
         c.lrtt.ab_update = FactorUpdate::Accumulated;
         c.lrtt.reinit_write = ReinitWrite::Pulsed;
       }},
      {"in blocks",
       [](Parts &c) {
         c.lrtt.adapter_span = AdapterSpan::Layer;
         c.lrtt.max_input_size = 32, c.lrtt.max_output_size = 20;
       }},
      {"in blocks, swapped and read to transfer",
       [](Parts &c) {
         c.lrtt.adapter_span = AdapterSpan::Layer;
         c.lrtt.max_input_size = 24, c.lrtt.max_output_size = 45;
         c.lrtt.swap_xd = true, c.lrtt.transfer_read = TransferRead::Analog;
       }},
      {"rank 0", [](Parts &c) { c.lrtt.rank = 0; }},
      {"rank 16", [](Parts &c) { c.lrtt.rank = 16; }},
  };
  for (const auto &[name, change] : changes) {
    SCOPED_TRACE(name);
    expectSameRun(lrttConfig(change));
    if (HasFailure()) return;
  }
}

/// Multiples of 1 / steps in [-1, 1].
void coarsen(std::vector<float> &values, float steps) {
  for (float &value : values) value = std::rint(value * steps) / steps;
}

// With inputs and factors of few bits a product has the same bits in any order of summation, and so
// have the updates computed from it, including updates with batched projections and pulse trains.
TEST(CudaTile, Property36_UpdatesByDefaultProducts) {
  PULSORA_REQUIRE_GPU();
  for (const bool sparse : {false, true}) {
    for (const bool swap : {false, true}) {
      for (const PulseType type : {PulseType::StochasticCompressed, PulseType::Stochastic}) {
        SCOPED_TRACE(message(sparse ? "sparse " : "dense ", swap ? "swapped" : ""));
        const TileConfig config = lrttConfig([&](Parts &c) {
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
        Batch batch = trainingBatch(64, kCourseCols, kCourseRows, false, 3);
        coarsen(batch.x, 8.0f);
        coarsen(batch.d, 8.0f);
        if (sparse) {
          for (float &d : batch.d) d *= 1.0f / 128.0f;
        }
        Batch factors =
            randomBatch(4, swap ? kCourseRows : kCourseCols, swap ? kCourseCols : kCourseRows, 6);
        coarsen(factors.x, 16.0f);
        coarsen(factors.d, 16.0f);
        State states[2];
        for (const Context &context : {cpuContext(), gpuContext()}) {
          Tile tile(kCourseRows, kCourseCols, config, 5, 2, context);
          const DeviceMatrix b(context,
                               rowMajor(factors.x.data(), 4, swap ? kCourseRows : kCourseCols));
          const DeviceMatrix a(context,
                               rowMajor(factors.d.data(), swap ? kCourseCols : kCourseRows, 4));
          tile.setArray("fast_a", a.view());
          tile.setArray("fast_b", b.view());
          const DeviceBatch on(context, batch);
          // In two pieces, of which the second is projected with the snapshot.
          for (const int64_t start : {0, 24}) {
            const int64_t count = start == 0 ? 24 : 40;
            tile.update(on.x.view().block(start, 0, count, kCourseCols),
                        on.d.view().block(start, 0, count, kCourseRows), 0.05f, BatchEnd::Later);
          }
          tile.endBatch(0.05f);
          states[context.onCpu() ? 0 : 1] = tile.state();
        }
        EXPECT_TRUE(sameState(states[0], states[1]));
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CudaTile, Property38_StatesGoFromOneBackendToTheOther) {
  PULSORA_REQUIRE_GPU();
  const TileConfig config = lrttConfig();
  const Course start = train(cpuContext(), config, 3);
  const Course cpu = train(cpuContext(), config, 4, &start.state);
  const Course gpu = train(reproducibleGpu(), config, 4, &start.state);
  EXPECT_TRUE(sameState(cpu.state, gpu.state));
  const Course back = train(cpuContext(), config, 2, &gpu.state);
  const Course direct = train(cpuContext(), config, 2, &cpu.state);
  EXPECT_TRUE(sameState(back.state, direct.state));
}

TEST(CudaTile, Property07_InputsThatAreNotFiniteChangeNothing) {
  PULSORA_REQUIRE_GPU();
  const Context gpu = gpuContext();
  for (const TileConfig &config :
       {singleConfig(), lrttConfig(),
        singleConfig([](Parts &c) { c.update.pulse_type = PulseType::None; }), idealConfig()}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (const bool inX : {false, true}) {
        Tile tile(kCourseRows, kCourseCols, config, 5, 2, gpu);
        const DeviceBatch good(gpu, randomBatch(4, kCourseCols, kCourseRows, 1));
        tile.update(good.x.view(), good.d.view(), 0.05f, BatchEnd::Later);
        const State before = tile.state();
        Batch batch = randomBatch(4, kCourseCols, kCourseRows, 2);
        (inX ? batch.x : batch.d)[5] = bad;
        const DeviceBatch on(gpu, batch);
        tile.update(on.x.view(), on.d.view(), 0.05f, BatchEnd::Later);
        // Skipped as well: nobody was told yet.
        tile.update(good.x.view(), good.d.view(), 0.05f, BatchEnd::Later);
        EXPECT_THROW(tile.state(), InputError);
        const State after = tile.state();  // reported once
        for (const auto &[name, tensor] : before.tensors) {
          if (name.find("snapshot") != std::string::npos) continue;  // retaken for each mini-batch
          EXPECT_EQ(tensor.bytes, after.tensors.at(name).bytes) << name;
        }
        tile.update(good.x.view(), good.d.view(), 0.05f, BatchEnd::Later);
        EXPECT_FALSE(sameState(after, tile.state()));
      }
    }
    Tile tile(kCourseRows, kCourseCols, config, 5, 2, gpu);
    std::vector<float> weights(static_cast<size_t>(kCourseRows * kCourseCols), kNaN);
    const DeviceMatrix on(gpu, rowMajor<const float>(weights.data(), kCourseRows, kCourseCols));
    EXPECT_THROW(tile.setWeights(on.view()), InputError);
  }
}

}  // namespace
}  // namespace pulsora
