#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "inference/inference_device.h"
#include "noise_models/power_law.h"
#include "noise_models/shift.h"
#include "tile/tile_programming.h"
#include "util/matrix_test_util.h"
#include "util/message_test_util.h"
#include "util/pulse_test_util.h"

// Reads of a programmed array at several points together, chips, measured conductances, and the
// read noise that each read draws for itself.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr int64_t kOut = 23;
constexpr int64_t kIn = 41;
constexpr int64_t kRows = 5;

TileConfig configOf(const InferenceParams &params) {
  TileConfig config;
  static_cast<TilePeriphery &>(config) = InferenceParams::defaults();
  config.forward.out_noise_std = 0.3f;
  config.compound = params;
  return config;
}

Tile someTile(const TileConfig &config, uint64_t seed = 3) {
  Tile tile(kOut, kIn, config, seed, 1);
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

std::vector<float> readOf(Tile &tile, MatrixView<const float> x) {
  std::vector<float> y(static_cast<size_t>(x.rows * kOut));
  tile.forward(x, rowMajor(y.data(), x.rows, kOut), {0, -1, true});
  return y;
}

TEST(ProgrammedPoints, Property65_ReadsAtManyPointsHaveTheBitsOfReadsAtEach) {
  for (const bool windowed : {false, true}) {
    InferenceParams params;
    params.stuck_low = 0.02f;
    if (windowed) params.read_window = 1e-3f;
    for (const uint64_t chip : {uint64_t{0}, uint64_t{5}}) {
      const std::vector<ProgrammedPoint> points = {
          {4, 0.0, 0, chip}, {4, 3600.0, 0, chip}, {1, 60.0, 2, chip}, {1, 0.5, 0, chip}};
      const auto count = static_cast<int64_t>(points.size());
      const Batch batch = randomBatch(2 * kRows, kIn, kOut, 7);
      Tile many = someTile(configOf(params));
      many.programming().programMany(points);
      Tile one = someTile(configOf(params));
      std::vector<float> together, apart;
      for (int64_t read = 0; read < 2; ++read) {  // the draws of the second read go on
        std::vector<float> x;
        for (int64_t r = 0; r < count; ++r)
          for (int64_t i = 0; i < kRows; ++i)
            for (int64_t j = 0; j < kIn; ++j)
              x.push_back(batch.xRows(0, 2 * kRows)(read * kRows + i, j));
        const std::vector<float> y =
            readOf(many, rowMajor<const float>(x.data(), count * kRows, kIn));
        together.insert(together.end(), y.begin(), y.end());
      }
      std::vector<std::vector<float>> reads(2);
      for (const ProgrammedPoint &point : points) {
        one.programming().program(point.number, chip);
        one.programming().drift(point.time, point.redraw);
        for (int64_t read = 0; read < 2; ++read) {
          const std::vector<float> y = readOf(one, batch.xRows(read * kRows, (read + 1) * kRows));
          reads[static_cast<size_t>(read)].insert(reads[static_cast<size_t>(read)].end(), y.begin(),
                                                  y.end());
        }
      }
      for (const std::vector<float> &each : reads)
        apart.insert(apart.end(), each.begin(), each.end());
      EXPECT_TRUE(sameBits(together, apart)) << windowed << chip;
      EXPECT_TRUE(sameBits(weightsOf(many), weightsOf(one)));  // of the last point
      const std::string said = messageOf([&] { readOf(many, batch.xRows(0, kRows)); });
      EXPECT_NE(said.find("a whole mini-batch for each point"), std::string::npos) << said;
      many.programming().drift(0.5);
      one.programming().drift(0.5);
      EXPECT_TRUE(
          sameBits(readOf(many, batch.xRows(0, kRows)), readOf(one, batch.xRows(0, kRows))));
    }
  }
}

TEST(ProgrammedPoints, ChipsHaveErrorsStuckDevicesAndConvertersOfTheirOwn) {
  InferenceParams params;
  params.stuck_low = 0.1f;
  PowerLaw::Params exact;
  params.noise_model = exact;  // no error but stuck devices
  Tile tile = someTile(configOf(params));
  const auto weightsOfChip = [&](uint64_t chip, uint64_t number) {
    tile.programming().program(number, chip);
    return weightsOf(tile);
  };
  EXPECT_TRUE(sameBits(weightsOfChip(1, 0), weightsOfChip(1, 3)));
  const std::vector<float> first = weightsOfChip(1, 0);
  EXPECT_FALSE(sameBits(first, weightsOfChip(2, 0)));
  const Batch batch = randomBatch(kRows, kIn, kOut, 7);
  const State state = tile.state();
  Tile made = Tile::fromState(state);
  EXPECT_EQ(made.programming().point().chip, 2U);
  EXPECT_TRUE(sameBits(readOf(tile, batch.xRows(0, kRows)), readOf(made, batch.xRows(0, kRows))));

  params = {};
  Tile noisy = someTile(configOf(params));
  noisy.programming().program(0, 1);
  const std::vector<float> one = weightsOf(noisy);
  noisy.programming().program(0, 2);
  EXPECT_FALSE(sameBits(one, weightsOf(noisy)));
  const std::string said =
      messageOf([&] { noisy.programming().programMany({{0, 0.0, 0, 1}, {0, 0.0, 0, 2}}); });
  EXPECT_NE(said.find("one chip"), std::string::npos) << said;
}

TEST(ProgrammedPoints, Property66_FrozenAndFreshVarianceAreTheWhole) {
  // Read noise of a power law with constant Q, no programming error and no drift: the variance of a
  // read is that of its frozen conductances plus that of its own draws, whatever the window is.
  PowerLaw::Params law;
  law.nu_mean = listOf(0.0f, 0.0f);
  law.read_noise = listOf(0.01f, 0.01f);
  constexpr int64_t kReads = 400;
  constexpr int kPoints = 100;
  const double whole = std::log((3600.0 + 20.0 + 250e-9) / 500e-9);
  for (const float window : {1e-6f, 1e-2f, 60.0f}) {
    InferenceParams params;
    params.noise_model = law;
    params.compensation = Compensation::None;
    params.read_window = window;
    TileConfig config = configOf(params);
    config.forward = {};
    config.forward.inp_res = config.forward.out_res = config.forward.out_noise = 0.0f;
    config.forward.out_bound = 0.0f;
    config.forward.noise_management = NoiseManagement::None;
    config.forward.bound_management = BoundManagement::None;
    Tile tile = someTile(config);
    std::vector<float> x(static_cast<size_t>(kReads * kIn));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = 0.5f * std::sin(static_cast<float>(i % kIn) + 1.0f);
    std::vector<double> expected(kOut);  // for Q^2 ln(...) = 1
    std::vector<float> written(kOut * kIn);
    tile.programming().getWritten(rowMajor(written.data(), kOut, kIn));
    for (int64_t i = 0; i < kOut; ++i) {
      for (int64_t j = 0; j < kIn; ++j) {
        const double term =
            double(written[static_cast<size_t>(i * kIn + j)]) * double(x[static_cast<size_t>(j)]);
        expected[static_cast<size_t>(i)] += term * term;
      }
    }
    double fresh = 0.0;  // relative to the expected variances
    double all = 0.0;
    std::vector<double> exact(kOut);
    for (int64_t i = 0; i < kOut; ++i)
      for (int64_t j = 0; j < kIn; ++j)
        exact[static_cast<size_t>(i)] +=
            double(written[static_cast<size_t>(i * kIn + j)]) * double(x[static_cast<size_t>(j)]);
    for (uint64_t p = 0; p < kPoints; ++p) {
      tile.programming().program(p);
      tile.programming().drift(3600.0);
      const std::vector<float> y = readOf(tile, rowMajor<const float>(x.data(), kReads, kIn));
      for (int64_t i = 0; i < kOut; ++i) {
        double mean = 0.0;
        double square = 0.0;
        for (int64_t r = 0; r < kReads; ++r) {
          const double error =
              double(y[static_cast<size_t>(r * kOut + i)]) - exact[static_cast<size_t>(i)];
          mean += error / kReads;
          square += error * error / kReads;
        }
        fresh += (square - mean * mean) * kReads / (kReads - 1) / expected[static_cast<size_t>(i)];
        all += square / expected[static_cast<size_t>(i)];
      }
    }
    const double slow = std::log((3600.0 + 20.0 + 250e-9) / double(window));
    const double q2 = 1e-4 * kOut * kPoints;
    // 2300 outputs; the spread of a variance of n values is sqrt(2 / n) of it: 5 sigma.
    EXPECT_NEAR(fresh / q2, whole - slow,
                5.0 * (whole - slow) * std::sqrt(2.0 / (kReads * kOut * kPoints)));
    EXPECT_NEAR(all / q2, whole, 5.0 * whole * std::sqrt(2.0 / (kOut * kPoints)));
  }
}

TEST(ProgrammedPoints, AReadWindowThatDrawsNoiseTwiceIsRefused) {
  InferenceParams params;
  params.read_window = 1e-7f;
  std::string said = messageOf([&] { configOf(params); });
  EXPECT_NE(said.find("shorter than two reads"), std::string::npos) << said;
  params.read_window = 1.0f;
  params.noise_model = Shift::Params{};
  said = messageOf([&] { configOf(params); });
  EXPECT_NE(said.find("no 1/f noise"), std::string::npos) << said;
  params.noise_model = PowerLaw::Params{};
  TileConfig config = configOf(params);
  config.forward.w_noise = 0.01f;
  config.forward.w_noise_type = WeightNoiseType::PcmRead;
  said = messageOf([&] { someTile(config); });
  EXPECT_NE(said.find("set one of them to 0"), std::string::npos) << said;
}

TEST(ProgrammedPoints, MeasuredConductancesAreProgrammedAndDrift) {
  InferenceParams params;
  Tile tile = someTile(configOf(params));
  tile.programming().program(6);
  const int64_t devices = tile.programming().devicesOfCell();
  std::vector<float> g(static_cast<size_t>(kOut * kIn * devices)), again(g.size());
  const MatrixView<float> all = rowMajor(g.data(), kOut * kIn, devices);
  tile.programming().getConductances(Conductances::Programmed, all);
  tile.programming().drift(1e5);
  const std::vector<float> drifted = weightsOf(tile);
  Tile measured = someTile(configOf(params));
  measured.programming().programMeasured(all, 6);
  measured.programming().drift(1e5);
  EXPECT_TRUE(sameBits(drifted, weightsOf(measured)));
  measured.programming().programMeasured(all, 7);  // the drift of another programming
  measured.programming().getConductances(Conductances::Programmed,
                                         rowMajor(again.data(), kOut * kIn, devices));
  EXPECT_TRUE(sameBits(g, again));
  measured.programming().drift(1e5);
  EXPECT_FALSE(sameBits(drifted, weightsOf(measured)));
  Tile made = Tile::fromState(measured.state());
  EXPECT_TRUE(made.programming().isMeasured());
  EXPECT_TRUE(sameBits(weightsOf(made), weightsOf(measured)));
  measured.programming().program(6);
  EXPECT_FALSE(measured.programming().isMeasured());
  measured.programming().drift(1e5);
  EXPECT_TRUE(sameBits(drifted, weightsOf(measured)));
  g[3] = -1.0f;
  const std::string said = messageOf([&] { measured.programming().programMeasured(all, 6); });
  EXPECT_NE(said.find("not negative"), std::string::npos) << said;
  EXPECT_TRUE(sameBits(drifted, weightsOf(measured)));
}

}  // namespace
}  // namespace pulsora
