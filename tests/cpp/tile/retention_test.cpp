#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "compounds/single.h"
#include "lrtt/parameters.h"
#include "noise_models/exponential.h"
#include "noise_models/power_law.h"
#include "noise_models/re_ram_wan2022.h"
#include "tile/tile.h"
#include "tile/tile_adapter.h"
#include "util/device_test_util.h"
#include "util/matrix_test_util.h"
#include "util/message_test_util.h"
#include "util/pulse_test_util.h"

// Tiles whose pulsed arrays drift: what reads see at an age follows from weights, seed and age
// alone, and the next pulse makes it the cells' own.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr int64_t kOut = 13;
constexpr int64_t kIn = 21;
constexpr int64_t kSamples = 6;
constexpr float kLr = 0.1f;

PowerLaw::Params spreadLaw() {
  PowerLaw::Params law;
  law.nu_mean = listOf(0.06f, 0.04f);
  law.nu_std = listOf(0.02f, 0.01f);
  law.read_noise = listOf(0.02f, 0.01f);
  return law;
}

PowerLaw::Params exactLaw() {
  PowerLaw::Params law;
  law.t_0 = 10.0f;
  return law;
}

/// A configuration of a kind in which every array drifts by spreadLaw().
TileConfig driftingConfig(const CompoundModel &model, const Value::Map &more = {}) {
  Value::Map values = more;
  for (const FieldInfo &field : model.fields) {
    if (field.name == "retention" || field.name == "retention_fast")
      values[field.name] = NoiseModelParams(spreadLaw()).write();
    if (field.name == "transfer_every" && field.type != "float") values[field.name] = Value(2);
    if (field.name == "rank") values[field.name] = Value(3);
    if (field.type == "device")
      values[field.name] = Value(Value::Map{{"model", Value("SoftBounds")},
                                            {"dw_min", Value(0.005)},
                                            {"write_noise_std", Value(2.0)}});
  }
  TileConfig config;
  config.compound = CompoundParams(model, Value(values), "");
  static_cast<TilePeriphery &>(config) = model.defaults;
  return config;
}

bool retains(const CompoundModel &model) {
  return std::any_of(model.fields.begin(), model.fields.end(),
                     [](const FieldInfo &field) { return field.name == "retention"; });
}

void train(Tile &tile, int steps, int first = 0) {
  for (int step = 0; step < steps; ++step) {
    const Batch batch = randomBatch(kSamples, kIn, kOut, static_cast<uint32_t>(first + step));
    std::vector<float> y(kSamples * kOut), dx(kSamples * kIn);
    tile.forward(batch.xRows(0, kSamples), rowMajor(y.data(), kSamples, kOut));
    tile.backward(batch.dRows(0, kSamples), rowMajor(dx.data(), kSamples, kIn));
    tile.update(batch.xRows(0, kSamples), batch.dRows(0, kSamples), kLr);
  }
}

Tile trainedTile(const TileConfig &config, const Context &context = {}) {
  Tile tile(kOut, kIn, config, 3, 1, context);
  std::vector<float> w;
  for (int64_t i = 0; i < kOut * kIn; ++i)
    w.push_back(0.3f * std::sin(static_cast<float>(i) * 1.7f));
  tile.setWeights(rowMajor<const float>(w.data(), kOut, kIn));
  train(tile, 3);
  return tile;
}

std::vector<float> weightsOf(const Tile &tile) {
  std::vector<float> w(kOut * kIn);
  tile.getWeights(rowMajor(w.data(), kOut, kIn));
  return w;
}

std::vector<float> arrayOf(const Tile &tile, const std::string &name) {
  const PulsedDevice &array = tile.array(name);
  std::vector<float> w(static_cast<size_t>(array.size()));
  tile.getArray(name, rowMajor(w.data(), array.rows(), array.cols()));
  return w;
}

/// The weights of all arrays, and a read, which an evaluation leaves without a trace.
std::vector<float> allOf(Tile &tile) {
  std::vector<float> all = weightsOf(tile);
  for (const std::string &name : tile.arrayNames()) {
    const std::vector<float> array = arrayOf(tile, name);
    all.insert(all.end(), array.begin(), array.end());
  }
  const Batch batch = randomBatch(kSamples, kIn, kOut, 77);
  std::vector<float> y(kSamples * kOut);
  tile.forward(batch.xRows(0, kSamples), rowMajor(y.data(), kSamples, kOut), {0, -1, true});
  all.insert(all.end(), y.begin(), y.end());
  return all;
}

/// Expects an exception of this type whose message has these words.
template <class Error, class Work>
void expectMessage(const Work &work, const std::string &words) {
  EXPECT_THROW(work(), Error);
  EXPECT_NE(messageOf(work).find(words), std::string::npos) << messageOf(work);
}

TEST(Retention, Property69_AnAgeHasOneReadingInAnyOrderOfCalls) {
  int kinds = 0;
  for (const CompoundModel &model : compoundModels()) {
    if (!retains(model)) continue;
    ++kinds;
    const TileConfig config = driftingConfig(model);
    Tile one = trainedTile(config);
    const std::vector<float> now = allOf(one);
    one.drift(3600.0);
    const std::vector<float> hour = allOf(one);
    EXPECT_FALSE(sameBits(now, hour)) << model.kind;

    Context many;
    many.cpu.threads = 5;
    Tile other = trainedTile(config, many);
    allOf(other);
    other.drift(1.0);
    allOf(other);
    other.drift(3600.0, 4);
    EXPECT_FALSE(sameBits(hour, allOf(other))) << model.kind;  // another reading
    other.drift(3600.0);
    EXPECT_TRUE(sameBits(hour, allOf(other))) << model.kind;
    other.drift(0.0);
    EXPECT_TRUE(sameBits(now, allOf(other))) << model.kind;

    other.drift(3600.0);
    Tile resumed = Tile::fromState(other.state(), {});
    EXPECT_TRUE(sameBits(hour, allOf(resumed))) << model.kind;
    train(one, 3, 10);
    train(resumed, 3, 10);
    EXPECT_TRUE(sameBits(allOf(one), allOf(resumed))) << model.kind;
  }
  EXPECT_EQ(kinds, 7);
}

TEST(Retention, Property69_WithoutAnAgeATileHasTheBitsOfOneWithoutRetention) {
  for (const CompoundModel &model : compoundModels()) {
    if (!retains(model)) continue;
    const TileConfig drifting = driftingConfig(model);
    Value own = drifting.compound.write();
    (*own.map())["retention"] = Value();
    if (own.map()->count("retention_fast")) (*own.map())["retention_fast"] = Value();
    TileConfig plain = drifting;
    plain.compound = CompoundParams(model, own, "");
    Tile with = trainedTile(drifting);
    Tile without = trainedTile(plain);
    EXPECT_TRUE(sameBits(allOf(with), allOf(without))) << model.kind;
    with.drift(60.0);
    with.drift(0.0);
    train(with, 2, 20);
    train(without, 2, 20);
    EXPECT_TRUE(sameBits(allOf(with), allOf(without))) << model.kind;
    EXPECT_FALSE(without.retains());
  }
}

// The parts of a mini-batch, at an age, are those of the whole.
TEST(Retention, Property69_AnUpdateAtAnAgeDoesNotDependOnItsParts) {
  for (const CompoundModel &model : compoundModels()) {
    if (!retains(model)) continue;
    const TileConfig config = driftingConfig(model);
    Tile whole = trainedTile(config);
    Tile parts = trainedTile(config);
    const Batch batch = randomBatch(kSamples, kIn, kOut, 31);
    whole.drift(1e5);
    parts.drift(1e5);
    whole.update(batch.xRows(0, kSamples), batch.dRows(0, kSamples), kLr);
    parts.update(batch.xRows(0, 2), batch.dRows(0, 2), kLr, BatchEnd::Later);
    parts.update(batch.xRows(2, kSamples), batch.dRows(2, kSamples), kLr);
    EXPECT_TRUE(sameBits(allOf(whole), allOf(parts))) << model.kind;
  }
}

TEST(Retention, Property70_DriftIsTheLawAndTheNextPulseMakesItTheCellsOwn) {
  SingleParams params;
  DeviceParams cells = makeParams("ConstantStep", {{"dw_min", 1e-4}});
  params.device = cells;
  params.retention = exactLaw();
  TileConfig config;
  config.compound = params;
  Tile tile = trainedTile(config);
  const std::vector<float> before = weightsOf(tile);
  tile.drift(90.0);
  const std::vector<float> aged = weightsOf(tile);
  const double left = std::pow(1.0 + 90.0 / 10.0, -0.05);
  for (size_t i = 0; i < before.size(); ++i)
    ASSERT_NEAR(aged[i], left * static_cast<double>(before[i]), 2e-7);

  // A pulse on one cell alone: the others keep what reads saw.
  std::vector<float> x(kIn, 0.0f), d(kOut, 0.0f);
  x[2] = 1.0f;
  d[3] = 1.0f;
  tile.update(rowMajor<const float>(x.data(), 1, kIn), rowMajor<const float>(d.data(), 1, kOut),
              kLr);
  EXPECT_EQ(tile.array("visible").age().time, 0.0);
  std::vector<float> after = weightsOf(tile);
  EXPECT_NE(after[3 * kIn + 2], aged[3 * kIn + 2]);
  after[3 * kIn + 2] = aged[3 * kIn + 2];
  EXPECT_TRUE(sameBits(after, aged));
  tile.drift(0.0);
  EXPECT_EQ(weightsOf(tile)[0], aged[0]);
}

TEST(Retention, ReadNoiseOfAnAgeIsNotMadePermanent) {
  SingleParams params;
  PowerLaw::Params law = exactLaw();
  law.read_noise = listOf(0.05f, 0.05f);
  law.drift_scale = 0.0f;
  params.retention = law;
  TileConfig config;
  config.compound = params;
  Tile tile = trainedTile(config);
  const std::vector<float> before = weightsOf(tile);
  tile.drift(1e4);
  const std::vector<float> read = weightsOf(tile);
  double change = 0.0;
  for (size_t i = 0; i < before.size(); ++i)
    change = std::max(change, std::fabs(double(before[i]) - double(read[i])));
  EXPECT_GT(change, 0.01);
  const std::vector<float> nothing(kIn + kOut, 0.0f);
  tile.update(rowMajor<const float>(nothing.data(), 1, kIn),
              rowMajor<const float>(nothing.data(), 1, kOut), kLr);
  const std::vector<float> after = weightsOf(tile);
  for (size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(after[i], before[i], 1e-6);
}

TEST(Retention, CellsStayWithinTheirBounds) {
  SingleParams params;
  PowerLaw::Params growing = exactLaw();
  growing.nu_mean = listOf(0.5f, 0.5f);
  growing.read_noise = listOf(0.5f, 0.5f);
  params.retention = growing;
  params.device = makeParams("ConstantStep", {{"w_max_dtod", 0.0}, {"w_min_dtod", 0.0}});
  TileConfig config;
  config.compound = params;
  Tile tile = trainedTile(config);
  const std::vector<float> full(kOut * kIn, 0.6f);
  tile.setWeights(rowMajor<const float>(full.data(), kOut, kIn));
  tile.drift(1.0);
  const std::vector<float> read = weightsOf(tile);
  EXPECT_EQ(*std::max_element(read.begin(), read.end()), 0.6f);
  EXPECT_GE(*std::min_element(read.begin(), read.end()), -0.6f);
}

TEST(Retention, StepsAreThoseOfTheDriftedWeights) {
  SingleParams params;
  params.device = makeParams("SoftBounds", {{"w_max_dtod", 0.0}, {"w_min_dtod", 0.0}});
  params.retention = exactLaw();
  TileConfig config;
  config.compound = params;
  Tile tile = trainedTile(config);
  const std::vector<float> full(kOut * kIn, 0.6f);
  tile.setWeights(rowMajor<const float>(full.data(), kOut, kIn));
  EXPECT_EQ(tile.array("visible").saturatedCells({}), kOut * kIn);
  tile.drift(90.0);
  EXPECT_EQ(tile.array("visible").saturatedCells({}), 0);
  const Buffer<float> aged = tile.array("visible").describeCells({});
  const std::vector<float> less = weightsOf(tile);
  tile.setWeights(rowMajor<const float>(less.data(), kOut, kIn));
  const Buffer<float> written = tile.array("visible").describeCells({});
  for (int64_t i = 0; i < 4 * kOut * kIn; ++i) ASSERT_EQ(aged.data()[i], written.data()[i]);
}

// W is not pulsed by an update of A and B, and stays at its age.
TEST(Retention, ArraysOfAnAdapterHaveClocksOfTheirOwn) {
  LRTTParams params;
  params.rank = 3;
  params.transfer_every = 0;
  params.retention = exactLaw();
  params.retention_fast = Exponential::Params{};
  TileConfig config;
  config.compound = params;
  Tile tile = trainedTile(config);
  const std::vector<float> b = arrayOf(tile, "fast_b");
  const std::vector<float> w = arrayOf(tile, "visible");
  tile.drift(46505.0);
  const std::vector<float> agedB = arrayOf(tile, "fast_b");
  for (size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(agedB[i], std::exp(-1.0) * double(b[i]), 0.02);
  const std::vector<float> agedW = arrayOf(tile, "visible");
  EXPECT_FALSE(sameBits(w, agedW));
  train(tile, 1, 5);
  EXPECT_EQ(tile.array("fast_a").age().time, 0.0);
  EXPECT_EQ(tile.array("fast_b").age().time, 0.0);
  EXPECT_EQ(tile.array("visible").age().time, 46505.0);
  EXPECT_TRUE(sameBits(agedW, arrayOf(tile, "visible")));
  tile.adapter().transfer();
  EXPECT_EQ(tile.array("visible").age().time, 0.0);
  tile.setWeights(rowMajor<const float>(w.data(), kOut, kIn));
  EXPECT_EQ(tile.array("fast_a").age().time, 0.0);
}

TEST(Retention, ADriftWithinAMiniBatchIsSeenByLaterProjections) {
  LRTTParams params;
  params.rank = 3;
  params.transfer_every = 0;
  params.projection = Projection::Exact;
  params.retention_fast = exactLaw();
  TileConfig config;
  config.compound = params;
  const Batch batch = randomBatch(kSamples, kIn, kOut, 31);
  const auto run = [&](bool ages) {
    Tile tile = trainedTile(config);
    tile.update(batch.xRows(0, 2), batch.dRows(0, 2), kLr, BatchEnd::Later);
    if (ages) tile.drift(1e9);
    tile.update(batch.xRows(2, kSamples), batch.dRows(2, kSamples), kLr);
    return arrayOf(tile, "fast_a");
  };
  EXPECT_FALSE(sameBits(run(false), run(true)));
}

TEST(Retention, ExplanationsAndStatisticsTellAges) {
  SingleParams params;
  params.retention = exactLaw();
  TileConfig config;
  config.compound = params;
  Tile tile = trainedTile(config);
  const Batch batch = randomBatch(kSamples, kIn, kOut, 1);
  const auto told = [&] {
    return tile.explain(batch.xRows(0, kSamples), batch.dRows(0, kSamples), kLr);
  };
  const size_t before = told().at("warnings").list()->size();
  tile.drift(60.0, 2);
  const Value::Map after = told();
  ASSERT_EQ(after.at("warnings").list()->size(), before + 1);
  EXPECT_NE(after.at("warnings").list()->back().text()->find("reads see visible at an age"),
            std::string::npos);
  const Value::Map statistics = tile.statistics();
  const Value::Map &array = *statistics.at("retention").map()->at("visible").map();
  EXPECT_EQ(*array.at("model").text(), "PowerLaw");
  EXPECT_EQ(*array.at("time").real(), 60.0);
  EXPECT_EQ(*array.at("redraw").integer(), 2);
}

TEST(Retention, BadRequestsNameTheRemedyAndChangeNothing) {
  SingleParams params;
  TileConfig config;
  config.compound = params;
  Tile plain = trainedTile(config);
  expectMessage<ConfigError>([&] { plain.drift(1.0); }, "give its configuration a retention");

  params.retention = ReRamWan2022::Params{};
  config.compound = params;
  Tile table = trainedTile(config);
  table.drift(10.0);
  const std::vector<float> before = allOf(table);
  expectMessage<ConfigError>([&] { table.drift(1e9); }, "has numbers up to");
  expectMessage<ConfigError>([&] { table.drift(-1.0); }, "seconds since the last pulse");
  expectMessage<ConfigError>([&] { table.drift(std::numeric_limits<double>::infinity()); },
                             "a finite number >= 0");
  expectMessage<ConfigError>([&] { table.drift(1.0, uint64_t{1} << 40); }, "redraw is");
  table.drift(10.0);
  EXPECT_TRUE(sameBits(before, allOf(table)));

  config.update.pulse_type = PulseType::None;
  expectMessage<ConfigError>([&] { trainedTile(config); }, "update.pulse_type is 'none'");
  SingleParams cell;
  cell.retention_cell = RetentionCell::Single;
  expectMessage<ConfigError>([&] { (void)CompoundParams(cell); }, "retention is None");

  State state = table.state();
  state.values["age"] = Value(-3.0);
  state.sign();
  expectMessage<StateError>([&] { Tile::fromState(state, {}); }, "an age that cannot be read");
}

}  // namespace
}  // namespace pulsora
