#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "inference/inference_device.h"
#include "noise_models/power_law.h"
#include "noise_models/re_ram_wan2022.h"
#include "tile/tile_programming.h"
#include "transfer/line_read.h"
#include "util/matrix_test_util.h"
#include "util/message_test_util.h"
#include "util/pulse_test_util.h"

// Tiles whose weights are programmed: what reads see follows from the point alone, not from the
// calls that led there.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr int64_t kOut = 23;
constexpr int64_t kIn = 41;

TileConfig inferenceConfig(const InferenceParams &params = {}) {
  TileConfig config;
  static_cast<TilePeriphery &>(config) = InferenceParams::defaults();
  config.compound = params;
  return config;
}

Tile someTile(const TileConfig &config, uint64_t seed = 3, uint32_t id = 1) {
  Tile tile(kOut, kIn, config, seed, id);
  std::vector<float> w;
  for (int64_t i = 0; i < kOut * kIn; ++i)
    w.push_back(0.3f * std::sin(static_cast<float>(i) * 1.7f));
  tile.setWeights(rowMajor<const float>(w.data(), kOut, kIn));
  return tile;
}

std::vector<float> weightsOf(const Tile &tile) {
  std::vector<float> w(kOut * kIn);
  tile.getWeights(rowMajor(w.data(), kOut, kIn));
  return w;
}

std::vector<float> readOf(Tile &tile, const BatchPart &part = {0, -1, true}) {
  const Batch batch = randomBatch(5, kIn, kOut, 77);
  std::vector<float> y(5 * kOut);
  tile.forward(batch.xRows(0, 5), rowMajor(y.data(), 5, kOut), part);
  return y;
}

TEST(Programming, Property61_APointHasOneArrayInAnyOrderOfCalls) {
  for (const Compensation rule : {Compensation::None, Compensation::Global, Compensation::PerOutput,
                                  Compensation::ExactReference}) {
    InferenceParams params;
    params.compensation = rule;
    params.stuck_low = 0.01f;
    Tile one = someTile(inferenceConfig(params));
    one.programming().program(7);
    one.programming().drift(60.0);
    const std::vector<float> weights = weightsOf(one);
    const std::vector<float> read = readOf(one);

    Tile other = someTile(inferenceConfig(params));
    readOf(other, {});
    other.programming().program(2);
    other.programming().drift(1e6);
    readOf(other);
    other.programming().program(7);
    other.programming().drift(1.0);
    other.programming().drift(60.0, 4);
    EXPECT_FALSE(sameBits(weights, weightsOf(other)));  // another reading
    other.programming().drift(60.0);
    EXPECT_TRUE(sameBits(weights, weightsOf(other)));
    EXPECT_TRUE(sameBits(read, readOf(other)));

    Tile chip = someTile(inferenceConfig(params), 3, 2);
    chip.programming().program(7);
    chip.programming().drift(60.0);
    EXPECT_FALSE(sameBits(weights, weightsOf(chip)));
  }
}

TEST(Programming, Property61_ProgrammingToATimeIsProgrammingAndDrift) {
  for (const Compensation rule :
       {Compensation::None, Compensation::Global, Compensation::ExactReference}) {
    for (const CellKind cell : {CellKind::Pair, CellKind::Single, CellKind::Slices}) {
      for (const float window : {0.0f, 60.0f}) {
        InferenceParams params;
        params.compensation = rule;
        params.cell = cell;
        params.read_window = window;
        TileConfig config = inferenceConfig(params);
        config.forward.w_noise = 0.0f;
        Tile one = someTile(config);
        Tile other = someTile(config);
        for (const double time : {3600.0, 0.0, 1.0}) {
          one.programming().program(7, 2);
          one.programming().drift(time);
          other.programming().program(7, 2, time);
          EXPECT_EQ(other.programming().point().time, time);
          EXPECT_TRUE(sameBits(weightsOf(one), weightsOf(other)));
          EXPECT_TRUE(
              sameBits(one.programming().compensation(), other.programming().compensation()));
          EXPECT_TRUE(sameBits(readOf(one), readOf(other)));
          one.programming().drift(60.0, 1);  // the reference is that of time 0
          other.programming().drift(60.0, 1);
          EXPECT_TRUE(sameBits(readOf(one), readOf(other)));
        }
      }
    }
  }
}

TEST(Programming, ATimeWithoutNumbersIsRefusedBeforeAnythingIsProgrammed) {
  InferenceParams params;
  params.noise_model = ReRamWan2022::Params();
  Tile tile = someTile(inferenceConfig(params));
  const std::string said = messageOf([&] { tile.programming().program(1, 0, 1e9); });
  EXPECT_NE(said.find("extrapolate=True"), std::string::npos) << said;
  EXPECT_FALSE(tile.programming().isProgrammed());
  tile.programming().program(2);
  messageOf([&] { tile.programming().program(1, 0, -1.0); });
  EXPECT_EQ(tile.programming().point().number, 2U);
}

TEST(Programming, Property61_AStateContinuesToTheBit) {
  InferenceParams params;
  params.cell = CellKind::Single;
  params.cell_reference = CellReference::Column;
  Tile tile = someTile(inferenceConfig(params));
  tile.programming().program(3);
  tile.programming().drift(500.0, 2);
  readOf(tile, {});
  Tile made = Tile::fromState(tile.state());
  EXPECT_TRUE(sameBits(weightsOf(tile), weightsOf(made)));
  EXPECT_TRUE(sameBits(readOf(tile, {}), readOf(made, {})));
  EXPECT_EQ(made.programming().point().time, 500.0);
  std::vector<float> written(kOut * kIn), again(kOut * kIn);
  tile.programming().getWritten(rowMajor(written.data(), kOut, kIn));
  made.programming().getWritten(rowMajor(again.data(), kOut, kIn));
  EXPECT_TRUE(sameBits(written, again));

  State damaged = tile.state();
  damaged.values["programming/time"] = Value(-1.0);
  damaged.sign();
  const std::string said = messageOf([&] { Tile::fromState(damaged); });
  EXPECT_NE(said.find("time is -1"), std::string::npos) << said;
}

TEST(Programming, CountersOfTrainingDoNotNumberReadsOfAProgrammedArray) {
  Tile tile = someTile(inferenceConfig());
  readOf(tile, {});
  tile.programming().program();
  readOf(tile, {});
  EXPECT_EQ(tile.counters().forwardSamples, 5U);
  tile.programming().unprogram();
  readOf(tile, {});
  EXPECT_EQ(tile.counters().forwardSamples, 10U);
}

TEST(Programming, ChangedWeightsAreNotReadUntilTheyAreProgrammedAgain) {
  Tile tile = someTile(inferenceConfig());
  const auto refused = [&](const std::function<void()> &work, const std::string &part) {
    const std::string said = messageOf(work);
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  refused([&] { tile.programming().drift(1.0); }, "nothing is programmed");
  tile.programming().program();
  const std::vector<float> before = weightsOf(tile);
  for (const double time :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    refused([&] { tile.programming().drift(time); }, "time is");
  EXPECT_TRUE(sameBits(before, weightsOf(tile)));
  const Batch batch = randomBatch(2, kIn, kOut, 1);
  tile.update(batch.xRows(0, 2), batch.dRows(0, 2), 0.1f);
  EXPECT_TRUE(tile.programming().isStale());
  refused([&] { readOf(tile); }, "program it again");
  refused([&] { tile.programming().drift(1.0); }, "program them again");
  const State stale = tile.state();
  Tile made = Tile::fromState(stale);
  refused([&] { readOf(made); }, "program it again");
  made.programming().program(1);
  readOf(made);
  tile.programming().unprogram();
  readOf(tile);
}

TEST(Programming, AShiftModelRefusesTimesWithoutNumbers) {
  InferenceParams params;
  params.noise_model = ReRamWan2022::Params{};
  Tile tile = someTile(inferenceConfig(params));
  tile.programming().program();
  const std::string said = messageOf([&] { tile.programming().drift(1e6); });
  EXPECT_NE(said.find("extrapolate=True"), std::string::npos) << said;
  tile.programming().drift(3600.0);
}

TEST(Programming, Property62_AReadoutIsTheSumOfOneHotReads) {
  // Each reading, of every effect on a single input, against the periphery's own read.
  for (int effects = 0; effects < 3; ++effects) {
    IOParameters io;
    io.noise_management = NoiseManagement::None;
    io.bound_management = BoundManagement::None;
    io.out_noise_std = 0.3f;
    if (effects >= 1) {
      io.w_noise = 0.05f;
      io.w_noise_type = effects == 1 ? WeightNoiseType::AdditiveConstant : WeightNoiseType::PcmRead;
      io.ir_drop = 1.0f;
      io.ir_drop_gw_div_gmax = 500.0f;
      io.out_nonlinearity = 0.4f;
      io.out_asymmetry = 0.1f;
    }
    if (effects == 2) {
      io.v_offset_std = 0.1f;
      io.r_series = 0.2f;
      io.inp_sto_round = io.out_sto_round = true;
    }
    const ReadKeys keys(makeKey(1, 2, 3));
    AnalogRead read({}, io, Pass::Forward, kIn, kOut, keys);
    LineRead lines({}, io, Pass::Forward, kIn, kOut, keys);
    const Batch batch = randomBatch(kOut, kIn, kOut, 9);
    const MatrixView<const float> weights = batch.xRows(0, kOut);
    const MatrixView<const float> all = lines.run({}, weights, 11);
    const OneHotRead one = read.oneHot(weights, 11);
    for (int64_t i = 0; i < kOut; ++i) {
      for (int64_t j = 0; j < kIn; ++j)
        ASSERT_NEAR(one(i, j), all(j, i), 2e-6) << effects << ": " << i << ", " << j;
    }
  }
}

TEST(Programming, Property62_CompensationUndoesADriftThatAllDevicesShare) {
  PowerLaw::Params drift;
  drift.nu_mean = listOf(0.07f, 0.07f);
  InferenceParams params;
  params.noise_model = drift;
  params.compensation_read = CompensationRead::Exact;
  for (const Compensation rule :
       {Compensation::Global, Compensation::PerOutput, Compensation::ExactReference}) {
    params.compensation = rule;
    Tile tile = someTile(inferenceConfig(params));
    const std::vector<float> written = weightsOf(tile);
    tile.programming().program();
    tile.programming().drift(1e5);
    const double alpha = std::pow((1e5 + 20.0) / 20.0, 0.07);
    for (const float factor : tile.programming().compensation())
      EXPECT_NEAR(factor, alpha, 2e-6 * alpha);
    const std::vector<float> seen = weightsOf(tile);
    for (size_t i = 0; i < seen.size(); ++i) ASSERT_NEAR(seen[i], written[i], 1e-6);
  }
}

}  // namespace
}  // namespace pulsora
