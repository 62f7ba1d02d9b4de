#include "noise_models/realise.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "noise_models/pcm_like.h"
#include "util/matrix_test_util.h"

// A realisation is a function of weights, keys and point: not of threads, instruction sets, or of
// which cells are made together.

namespace pulsora {
namespace {

struct Made {
  std::vector<float> weights, conductances;
};

std::vector<float> someWeights(int64_t cells) {
  std::vector<float> w;
  for (int64_t i = 0; i < cells; ++i) w.push_back(static_cast<float>(i * 37 % 201 - 100) / 100.0f);
  return w;
}

CellEncoding someCell(int kind) {
  switch (kind) {
    case 0:
      return cellEncoding(CellKind::Pair, listOf(1.0f), 0);
    case 1:
      return cellEncoding(CellKind::Single, listOf(1.0f), 0);
    case 2:
      return cellEncoding(CellKind::TwoSidedPair, listOf(1.0f), 4);
    default:
      return cellEncoding(CellKind::Pairs, listOf(1.0f, 2.0f, 4.0f), 0);
  }
}

Made made(const Context &context, const NoiseModelParams &model, int kind,
          const std::vector<float> &wanted, uint64_t firstDevice, double time) {
  const CellEncoding cell = someCell(kind);
  Made out{std::vector<float>(wanted.size()),
           std::vector<float>(wanted.size() * static_cast<size_t>(cell.devices))};
  Realisation r;
  r.wanted = wanted.data();
  r.cells = static_cast<int64_t>(wanted.size());
  r.firstDevice = firstDevice;
  r.cell = cell;
  r.number = 5;
  r.keys = RealisationKeys::at(makeKey(1, 2, 3), makeKey(1, 2, 4), {5, time, 0});
  r.stuckLow = 0.05f;
  r.stuckHigh = 0.02f;
  r.weights = out.weights.data();
  r.conductances = out.conductances.data();
  realise(context, model, time, r);
  return out;
}

TEST(Realisations, Property61_DoNotDependOnThreadsOrNeighbours) {
  // Whole groups of any encoding have a multiple of 8 cells.
  constexpr int64_t kCells = 5003;
  constexpr int64_t kLater = 3000 / 8 * 8;
  const std::vector<float> wanted = someWeights(kCells);
  const std::vector<float> later(wanted.begin() + kLater, wanted.end());
  for (const NoiseModel &each : noiseModels()) {
    const NoiseModelParams model =
        NoiseModelParams::read(Value(Value::Map{{"model", each.name}}), "noise_model");
    for (int kind = 0; kind < 4; ++kind) {
      Context many;
      many.cpu.threads = 7;
      const Made one = made({}, model, kind, wanted, 0, 1.0);
      const Made same = made(many, model, kind, wanted, 0, 1.0);
      ASSERT_TRUE(testing::sameBits(one.weights, same.weights)) << each.name << " " << kind;
      ASSERT_TRUE(testing::sameBits(one.conductances, same.conductances));
      const auto devices = static_cast<int64_t>(one.conductances.size()) / kCells;
      const Made part = made({}, model, kind, later, uint64_t(kLater * devices), 1.0);
      for (size_t i = 0; i < later.size(); ++i)
        ASSERT_EQ(part.weights[i], one.weights[static_cast<size_t>(kLater) + i]) << each.name;
    }
  }
}

TEST(Realisations, Property61_WeightsAreThoseOfTheirConductances) {
  const NoiseModelParams model = PCMLike::Params{};
  const std::vector<float> wanted = someWeights(301);
  for (int kind = 0; kind < 4; ++kind) {
    const CellEncoding cell = someCell(kind);
    const Made out = made({}, model, kind, wanted, 0, 3600.0);
    for (size_t i = 0; i < wanted.size(); ++i) {
      double w = static_cast<double>(cell.constant);
      for (int k = 0; k < cell.devices; ++k) {
        const size_t at = i * static_cast<size_t>(cell.devices) + static_cast<size_t>(k);
        w += static_cast<double>(cell.device[k].share) * double(out.conductances[at]) / 25.0;
      }
      ASSERT_NEAR(out.weights[i], w, 1e-6) << kind;
    }
  }
}

TEST(CellEncodings, TargetsDecodeToTheirWeight) {
  for (int kind = 0; kind < 4; ++kind) {
    const CellEncoding cell = someCell(kind);
    for (const float w : someWeights(201)) {
      float g[CellEncoding::kMostDevices] = {};
      for (int k = 0; k < cell.devices; ++k) {
        g[k] = cell.target(w, k);
        EXPECT_GE(g[k], 0.0f);
        EXPECT_LE(g[k], 1.0f);
      }
      // With 4 bits the two halves are rounded by half a step of 1/15 at most.
      const float tolerance = cell.levels > 0.0f ? 1.0f / cell.levels : 3e-7f;
      EXPECT_NEAR(cell.weight(g), w, tolerance) << kind;
    }
  }
}

TEST(Realisations, StuckDevicesHaveTheirShares) {
  // N = 40000 cells of two devices; 5 sigma of a binomial share.
  const std::vector<float> wanted(40000, 0.5f);
  PCMLike::Params exact;
  exact.prog_noise_scale = exact.read_noise_scale = exact.drift_scale = 0.0f;
  const Made out = made({}, exact, 2, wanted, 0, 1.0);
  double low = 0.0;
  double high = 0.0;
  for (const float g : out.conductances) {
    low += g == 0.0f ? 1.0 : 0.0;
    high += g == 25.0f ? 1.0 : 0.0;
  }
  const double n = static_cast<double>(out.conductances.size());
  EXPECT_NEAR(low / n, 0.05, 5.0 * std::sqrt(0.05 * 0.95 / n));
  EXPECT_NEAR(high / n, 0.02, 5.0 * std::sqrt(0.02 * 0.98 / n));
}

}  // namespace
}  // namespace pulsora
