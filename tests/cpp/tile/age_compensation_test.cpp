#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "noise_models/power_law.h"
#include "tile/tile.h"
#include "util/device_test_util.h"
#include "util/matrix_test_util.h"
#include "util/pulse_test_util.h"

// Drift compensation of tiles of pulsed arrays: factors on outputs, in every compound.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr int64_t kOut = 13;
constexpr int64_t kIn = 21;
constexpr int64_t kSamples = 6;

/// A configuration of a kind in which every array drifts.
TileConfig driftingConfig(const CompoundModel &model, const char *rule) {
  PowerLaw::Params law;
  law.nu_mean = listOf(0.06f, 0.04f);
  law.nu_std = listOf(0.02f, 0.01f);
  law.read_noise = listOf(0.02f, 0.01f);
  Value::Map values{{"retention_compensation", Value(rule)}};
  for (const FieldInfo &field : model.fields) {
    if (field.name == "retention" || field.name == "retention_fast")
      values[field.name] = NoiseModelParams(law).write();
    if (field.name == "rank") values[field.name] = Value(3);
  }
  TileConfig config;
  config.compound = CompoundParams(model, Value(values), "");
  static_cast<TilePeriphery &>(config) = model.defaults;
  return config;
}

void step(Tile &tile, uint32_t number) {
  const Batch batch = randomBatch(kSamples, kIn, kOut, number);
  tile.update(batch.xRows(0, kSamples), batch.dRows(0, kSamples), 0.1f);
}

Tile trainedTile(const CompoundModel &model, const char *rule) {
  Tile tile(kOut, kIn, driftingConfig(model, rule), 3, 1, {});
  std::vector<float> w;
  for (int64_t i = 0; i < kOut * kIn; ++i)
    w.push_back(0.3f * std::sin(static_cast<float>(i) * 1.7f));
  tile.setWeights(rowMajor<const float>(w.data(), kOut, kIn));
  step(tile, 1);
  return tile;
}

std::vector<float> weightsOf(const Tile &tile) {
  std::vector<float> w(kOut * kIn);
  tile.getWeights(rowMajor(w.data(), kOut, kIn));
  return w;
}

/// The sum of the magnitudes of the weights of each output.
std::vector<double> readingsOf(const Tile &tile) {
  const std::vector<float> weights = weightsOf(tile);
  std::vector<double> sums(kOut, 0.0);
  for (size_t i = 0; i < weights.size(); ++i)
    sums[i / kIn] += std::abs(static_cast<double>(weights[i]));
  return sums;
}

double sumOf(const std::vector<double> &values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

template <class Use>
void forDriftingKinds(const Use &use) {
  int kinds = 0;
  for (const CompoundModel &model : compoundModels()) {
    if (std::none_of(model.fields.begin(), model.fields.end(),
                     [](const FieldInfo &field) { return field.name == "retention"; }))
      continue;
    SCOPED_TRACE(model.kind);
    use(model);
    ++kinds;
  }
  EXPECT_GE(kinds, 5);
}

TEST(AgeCompensation, RestoresTheMeanReadings) {
  forDriftingKinds([](const CompoundModel &model) {
    Tile plain = trainedTile(model, "none");
    Tile global = trainedTile(model, "global");
    Tile rows = trainedTile(model, "per_output");
    const std::vector<double> before = readingsOf(plain);
    for (Tile *tile : {&plain, &global, &rows}) tile->drift(1e5);
    const std::vector<double> after = readingsOf(plain);
    const double ratio = sumOf(before) / sumOf(after);
    EXPECT_GT(ratio, 1.05);
    const std::vector<float> ofRows = rows.ageCompensation();
    const std::vector<float> ofTile = global.ageCompensation();
    for (size_t i = 0; i < ofRows.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(ofRows[i]), before[i] / after[i], 1e-4);
      EXPECT_NEAR(static_cast<double>(ofTile[i]), ratio, 1e-4);
    }
    EXPECT_NEAR(sumOf(readingsOf(global)), sumOf(before), 1e-4 * sumOf(before));
  });
}

// What processes exchange, and what a state holds, has the factors and their baseline.
TEST(AgeCompensation, TravelsWithTheChangesOfATile) {
  forDriftingKinds([](const CompoundModel &model) {
    Tile one = trainedTile(model, "per_output");
    Tile other = trainedTile(model, "per_output");
    one.drift(1e5);
    step(one, 2);
    std::vector<float> packed(static_cast<size_t>(one.changesSize()));
    one.packChanges(packed.data());
    other.unpackChanges(packed.data());
    Tile loaded = Tile::fromState(one.state(), {});
    for (Tile *tile : {&other, &loaded}) {
      EXPECT_TRUE(sameBits(one.ageCompensation(), tile->ageCompensation()));
      EXPECT_TRUE(sameBits(weightsOf(one), weightsOf(*tile)));
    }
    for (Tile *tile : {&one, &other, &loaded}) tile->drift(1e6);
    for (Tile *tile : {&other, &loaded}) {
      EXPECT_TRUE(sameBits(one.ageCompensation(), tile->ageCompensation()));
      EXPECT_TRUE(sameBits(weightsOf(one), weightsOf(*tile)));
    }
  });
}

}  // namespace
}  // namespace pulsora
