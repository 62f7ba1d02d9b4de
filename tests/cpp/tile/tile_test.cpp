#include "tile/tile.h"

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "array/array_keys.h"
#include "compounds/single.h"
#include "lrtt/parameters.h"
#include "tile/tile_adapter.h"
#include "util/pulse_test_util.h"

namespace RPU::testing {
namespace {

constexpr int64_t kRows = 7;
constexpr int64_t kCols = 9;

/// A configuration of a registered compound, with everything that cells can do and noise on every
/// read.
TileConfig configOf(const std::string &kind, Value::Map extra = {}) {
  Value::Map map = std::move(extra);
  map["kind"] = Value(kind);
  const Value device(Value::Map{{"model", "SoftBounds"},
                                {"dw_min", 0.005},
                                {"lifetime", 50.0},
                                {"lifetime_dtod", 0.2},
                                {"diffusion", 0.002},
                                {"diffusion_dtod", 0.3},
                                {"reset_dtod", 0.01},
                                {"write_noise_std", 0.5}});
  for (const FieldInfo &field : compoundModel(kind, "kind").fields) {
    if (field.type == "device") map.try_emplace(field.name, device);
    if (field.name == "rank") map.try_emplace(field.name, Value(2));
    if (field.name == "transfer_every") map.try_emplace(field.name, Value(7));
  }
  map.try_emplace("forward", Value(Value::Map{}));
  map.try_emplace("backward", Value(Value::Map{}));
  return readParams<TileConfig>(Value(std::move(map)), "");
}

std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const CompoundModel &model : compoundModels()) names.push_back(model.kind);
  return names;
}

using Numbers = std::vector<float>;

/// A few mini-batches of everything a tile does; returns all it put out. Each mini-batch comes in
/// parts of `part` samples.
Numbers run(Tile &tile, uint64_t from, uint64_t steps, int64_t part = 6) {
  Numbers out;
  for (uint64_t step = from; step < from + steps; ++step) {
    const Batch b = randomBatch(6, kCols, kRows, 100 + step);
    Numbers y(6 * kRows);
    Numbers dx(6 * kCols);
    for (int64_t s = 0; s < 6; s += part) {
      const int64_t end = std::min<int64_t>(s + part, 6);
      tile.forward(b.xRows(s, end), rowMajor(&y[static_cast<size_t>(s * kRows)], end - s, kRows));
      tile.backward(b.dRows(s, end), rowMajor(&dx[static_cast<size_t>(s * kCols)], end - s, kCols));
    }
    for (int64_t s = 0; s < 6; s += part) {
      const int64_t end = std::min<int64_t>(s + part, 6);
      tile.update(b.xRows(s, end), b.dRows(s, end), 0.1f);
    }
    tile.postUpdate(0.1f);
    out.insert(out.end(), y.begin(), y.end());
    out.insert(out.end(), dx.begin(), dx.end());
  }
  Numbers w(kRows * kCols);
  tile.getWeights(rowMajor(w.data(), kRows, kCols));
  out.insert(out.end(), w.begin(), w.end());
  return out;
}

Tile makeTile(const std::string &kind, const Context &context = onCpu(1), uint64_t seed = 11,
              uint32_t id = 3) {
  return Tile(kRows, kCols, configOf(kind), seed, id, context);
}
Numbers fresh(const std::string &kind, const Context &context, int64_t part = 6) {
  Tile tile = makeTile(kind, context);
  return run(tile, 0, 8, part);
}

class TileOfKind : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Tile, TileOfKind, ::testing::ValuesIn(kinds()),
                         [](const auto &kind) { return kind.param; });

TEST_P(TileOfKind, Property37_AnySplitThreadsAndIsaGiveTheSameBits) {
  const Numbers expected = fresh(GetParam(), onCpu(1));
  EXPECT_EQ(fresh(GetParam(), onCpu(1)), expected);
  for (const int threads : {2, 3})
    EXPECT_EQ(fresh(GetParam(), onCpu(threads)), expected) << threads << " threads";
  for (const Isa isa : supportedIsas())
    EXPECT_EQ(fresh(GetParam(), onCpu(1, isa)), expected) << isaName(isa);
  for (const int64_t part : {1, 2, 4, 5})
    EXPECT_EQ(fresh(GetParam(), onCpu(1), part), expected) << "parts of " << part;
}

TEST_P(TileOfKind, SeedAndTileIdMakeAnotherTile) {
  const Numbers expected = fresh(GetParam(), onCpu(1));
  Tile seed = makeTile(GetParam(), onCpu(1), 12);
  Tile id = makeTile(GetParam(), onCpu(1), 11, 4);
  EXPECT_NE(run(seed, 0, 8), expected);
  EXPECT_NE(run(id, 0, 8), expected);
}

TEST_P(TileOfKind, Property38_ResumeIsTheUninterruptedRun) {
  Tile whole = makeTile(GetParam());
  run(whole, 0, 3);
  const State state = whole.state();
  const Numbers expected = run(whole, 3, 4);
  Tile resumed = makeTile(GetParam(), onCpu(2));
  run(resumed, 5, 2);  // whatever it did before is forgotten
  resumed.loadState(state);
  EXPECT_EQ(run(resumed, 3, 4), expected);
  // Also in the middle of a mini-batch.
  Tile cut = makeTile(GetParam());
  const Batch b = randomBatch(6, kCols, kRows, 1);
  cut.update(b.xRows(0, 4), b.dRows(0, 4), 0.1f);
  Tile loaded = makeTile(GetParam());
  loaded.loadState(cut.state());
  for (Tile *tile : {&cut, &loaded}) {
    tile->update(b.xRows(4, 6), b.dRows(4, 6), 0.1f);
    tile->postUpdate(0.1f);
  }
  EXPECT_EQ(run(cut, 0, 2), run(loaded, 0, 2));
}

/// loadState() refuses `bad`, and the tile stays what it was.
void expectRefused(Tile &tile, const State &bad, const std::string &what) {
  const State before = tile.state();
  EXPECT_THROW(tile.loadState(bad), StateError) << what;
  const State after = tile.state();
  EXPECT_EQ(after.values, before.values) << what;
  for (const auto &[name, tensor] : before.tensors)
    EXPECT_EQ(after.tensors.at(name).bytes, tensor.bytes) << what;
}

TEST_P(TileOfKind, AStateThatDoesNotFitIsRefusedAndChangesNothing) {
  Tile source = makeTile(GetParam());
  run(source, 0, 2);
  const State good = source.state();
  Tile tile = makeTile(GetParam());
  run(tile, 4, 1);
  for (const auto &[name, tensor] : good.tensors) {
    State bad = good;
    bad.tensors.erase(name);
    expectRefused(tile, bad, "without " + name);
    bad = good;
    bad.tensors[name].bytes.pop_back();
    expectRefused(tile, bad, "truncated " + name);
    bad = good;
    bad.tensors[name].shape.push_back(1);
    expectRefused(tile, bad, "reshaped " + name);
  }
  for (const auto &[name, value] : good.values) {
    State bad = good;
    bad.values.erase(name);
    expectRefused(tile, bad, "without " + name);
    bad = good;
    bad.values[name] = Value(Value::List{});
    expectRefused(tile, bad, "with another type of " + name);
    if (!value.integer()) continue;
    bad.values[name] = Value(-5);
    expectRefused(tile, bad, "negative " + name);
  }
  State foreign = good;
  foreign.tensors["stranger"] = good.tensors.begin()->second;
  expectRefused(tile, foreign, "with a stranger");
  expectRefused(tile, makeTile(GetParam(), onCpu(1), 12).state(), "another seed");
  expectRefused(tile, Tile(kRows, kCols + 1, configOf(GetParam()), 11, 3).state(), "another size");
  expectRefused(
      tile,
      Tile(kRows, kCols, configOf(GetParam(), {{"forward", Value::Map{{"out_bound", 7.0}}}}), 11, 3)
          .state(),
      "another configuration");
  tile.loadState(good);
  EXPECT_EQ(run(tile, 2, 2), run(source, 2, 2));
}

TEST_P(TileOfKind, Property07_BadInputIsRefusedAndChangesNothing) {
  Tile tile = makeTile(GetParam());
  run(tile, 0, 1);
  const State before = tile.state();
  const Batch good = randomBatch(4, kCols, kRows, 5);
  Numbers y(4 * kRows);
  const auto yView = rowMajor(y.data(), 4, kRows);
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Batch bad = good;
    bad.x[static_cast<size_t>(2 * kCols + 4)] = value;
    bad.d[1] = value;
    EXPECT_THROW(tile.update(bad.xView(), good.dView(), 0.1f), InputError);
    EXPECT_THROW(tile.update(good.xView(), bad.dView(), 0.1f), InputError);
    EXPECT_THROW(tile.forward(bad.xView(), yView), InputError);
    EXPECT_THROW(tile.update(good.xView(), good.dView(), value), ConfigError);
    EXPECT_THROW(tile.postUpdate(value), ConfigError);
    try {
      tile.update(bad.xView(), good.dView(), 0.1f);
    } catch (const InputError &error) {
      EXPECT_NE(std::string(error.what()).find("x[2, 4] is "), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(tile.update(good.dView(), good.xView(), 0.1f), InputError);
  EXPECT_THROW(tile.update(good.xRows(0, 3), good.dView(), 0.1f), InputError);
  EXPECT_THROW(tile.forward(good.xRows(0, 3), yView), InputError);
  EXPECT_THROW(tile.setWeights(good.xView()), InputError);
  const State after = tile.state();
  EXPECT_EQ(after.values, before.values);
  for (const auto &[name, tensor] : before.tensors)
    EXPECT_EQ(after.tensors.at(name).bytes, tensor.bytes) << name;
}

TEST_P(TileOfKind, CountsItsSamplesAndEvents) {
  Tile tile = makeTile(GetParam());
  run(tile, 0, 2, 4);
  EXPECT_EQ(tile.counters().forwardSamples, 12u);
  EXPECT_EQ(tile.counters().backwardSamples, 12u);
  EXPECT_EQ(tile.counters().updateSamples, 12u);
  EXPECT_EQ(tile.counters().miniBatches, 2u);
  const Numbers w(kRows * kCols, 0.01f);
  tile.setWeights(rowMajor<const float>(w.data(), kRows, kCols));
  EXPECT_EQ(tile.counters().events, 1u);
  Tile moved = std::move(tile);
  EXPECT_EQ(moved.counters().events, 1u);
  EXPECT_GT(*moved.statistics().at("memory_bytes").integer(), 0);
}

TEST(Tile, RefusesBadSizesSettingsAndContexts) {
  EXPECT_THROW(Tile(0, 3, TileConfig{}, 1), ConfigError);
  EXPECT_THROW(Tile(3, -1, TileConfig{}, 1), ConfigError);
  EXPECT_THROW(Tile(int64_t{1} << 20, int64_t{1} << 20, TileConfig{}, 1), ConfigError);
  TileConfig config;
  config.update.desired_bl = 0;
  try {
    Tile tile(3, 3, config, 1);
    ADD_FAILURE();
  } catch (const ConfigError &error) {
    EXPECT_NE(std::string(error.what()).find("update.desired_bl is 0"), std::string::npos);
  }
  EXPECT_THROW(Tile(3, 3, TileConfig{}, 1, 0, onCpu(0)), ConfigError);
  Tile tile(3, 3, TileConfig{}, 1);
  EXPECT_THROW(tile.setContext(onCpu(-1)), ConfigError);
  EXPECT_EQ(tile.context().cpu.threads, 1);
}

// --- arrays by name ---

TEST_P(TileOfKind, ArraysAreReadWrittenAndResetByName) {
  Tile tile = makeTile(GetParam());
  for (const std::string &name : tile.arrayNames()) {
    SCOPED_TRACE(name);
    const int64_t rows = tile.array(name).rows();
    const int64_t cols = tile.array(name).cols();
    const Numbers written(static_cast<size_t>(rows * cols), 0.05f);
    tile.setArray(name, rowMajor(written.data(), rows, cols));
    const uint64_t events = tile.counters().events;
    Numbers read(written.size());
    tile.getArray(name, rowMajor(read.data(), rows, cols));
    for (size_t i = 0; i < read.size(); ++i) EXPECT_NEAR(read[i], written[i], 0.02f) << i;
    // A reset takes a cell to its reset value, here 0 with spreads of 0.01 between cells and
    // resets.
    tile.resetColumns(name, cols - 1, 1, 1.0f);
    EXPECT_EQ(tile.counters().events, events + 1);
    Numbers after(written.size());
    tile.getArray(name, rowMajor(after.data(), rows, cols));
    for (int64_t i = 0; i < rows; ++i)
      EXPECT_NEAR(after[static_cast<size_t>(i * cols + cols - 1)], 0.0f, 0.08f) << i;
    EXPECT_THROW(tile.resetColumns(name, cols, 1, 1.0f), InputError);
    EXPECT_THROW(tile.resetColumns(name, 0, 1, 1.5f), InputError);
    EXPECT_THROW(tile.setArray(name, rowMajor(written.data(), cols, rows + 1)), InputError);
  }
  try {
    tile.array("stranger");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError &error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("'stranger'"), std::string::npos) << text;
    for (const std::string &name : tile.arrayNames())
      EXPECT_NE(text.find(name), std::string::npos) << text;
  }
}

TEST(Tile, OnlyATileWithAnAdapterOffersOne) {
  EXPECT_FALSE(makeTile("single").hasAdapter());
  EXPECT_FALSE(makeTile("ideal").hasAdapter());
  Tile single = makeTile("single");
  EXPECT_THROW(single.adapter(), ConfigError);
  Tile lrtt = makeTile("lrtt");
  ASSERT_TRUE(lrtt.hasAdapter());
  EXPECT_EQ(lrtt.adapter().rank(), 2);
  LRTTParams none;
  none.rank = 0;
  TileConfig config;
  config.compound = none;
  Tile rankZero(kRows, kCols, config, 1);
  EXPECT_FALSE(rankZero.hasAdapter());
  EXPECT_THROW(rankZero.adapter(), ConfigError);
}

// --- configurations ---

TEST(TileConfig, KeepsItsOwnCompoundsSettingsAlone) {
  LRTTParams lrtt;
  lrtt.rank = 3;
  TileConfig config;
  config.compound = lrtt;
  config.forward.out_noise = 0.25f;
  const Value written = writeParams(config);
  EXPECT_EQ(*written.map()->at("kind").text(), "lrtt");
  EXPECT_EQ(*written.map()->at("rank").integer(), 3);
  EXPECT_EQ(written.map()->count("device"), 0u);
  EXPECT_EQ(writeParams(readParams<TileConfig>(written, "")), written);
  EXPECT_EQ(config.compound.as<LRTTParams>().rank, 3);
  EXPECT_THROW(config.compound.as<SingleParams>(), ConfigError);
  lrtt.reinit_gain = -1.0f;
  EXPECT_THROW(config.compound = lrtt, ConfigError);
}

TEST(TileConfig, ReadsTheFormOfVersionOne) {
  const Value device(Value::Map{{"model", "SoftBounds"}, {"dw_min", 0.005}});
  const Value other(Value::Map{{"model", "ConstantStep"}});
  const auto read = [&](const char *kind) {
    return *writeParams(readParams<TileConfig>(
                            Value(Value::Map{{"kind", kind},
                                             {"device", device},
                                             {"lrtt", Value::Map{{"rank", 2}, {"fast", other}}},
                                             {"update", Value::Map{{"desired_bl", 5}}}}),
                            ""))
                .map();
  };
  const Value::Map single = read("single");
  EXPECT_EQ(*single.at("device").map()->at("model").text(), "SoftBounds");
  EXPECT_EQ(*single.at("update").map()->at("desired_bl").integer(), 5);
  EXPECT_EQ(single.count("lrtt"), 0u);
  const Value::Map lrtt = read("lrtt");
  EXPECT_EQ(*lrtt.at("rank").integer(), 2);
  EXPECT_EQ(lrtt.count("device"), 0u);
  const Value::Map ideal = read("ideal");
  EXPECT_EQ(ideal.count("device") + ideal.count("lrtt") + ideal.count("update"), 0u);
}

// --- property 39: no random number serves two purposes ---

constexpr Role kRoles[] = {Role::Cells,      Role::Update,   Role::Read,
                           Role::Projection, Role::Transfer, Role::Start};
constexpr uint32_t kSlots = 5;  // three with numbers of their own, and two by the rule

TEST(Tile, Property39_StreamsOfATileKeepTheirNumbers) {
  // Part of the contract of random numbers: saved tiles go on with them.
  EXPECT_EQ(streamOf(0, Role::Cells), 0u);
  EXPECT_EQ(streamOf(2, Role::Cells), 2u);
  EXPECT_EQ(streamOf(1, Role::Update), 9u);
  EXPECT_EQ(streamOf(2, Role::Read), 18u);
  EXPECT_EQ(streamOf(1, Role::Projection), 19u);
  EXPECT_EQ(streamOf(2, Role::Transfer), 22u);
  EXPECT_EQ(streamOf(2, Role::Start), 32u);
  EXPECT_EQ(streamOf(3, Role::Update), 64u + 3u * 16u + 1u);
  std::set<uint32_t> numbers;
  for (uint32_t slot = 0; slot < 1000; ++slot) {
    for (const Role role : kRoles) numbers.insert(streamOf(slot, role));
  }
  EXPECT_EQ(numbers.size(), 1000 * std::size(kRoles));
}

TEST(Tile, Property39_EveryArrayOfEveryTileHasItsOwnKey) {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  size_t made = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{1000}}) {
    for (uint32_t tile = 0; tile < 64; ++tile) {
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        for (const Role role : kRoles) {
          const RandomKey key = TileKeys{seed, tile}.of(slot, role);
          keys.insert({key.k0, key.k1});
          ++made;
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), made);
}

/// Blocks of random words by what they are drawn for. A block may be drawn again for the same thing
/// (samples share blocks), never for another.
class Audit {
 public:
  void use(RandomKey key, Purpose purpose, int64_t element, uint64_t sample, uint32_t index,
           const std::string &what) {
    const Philox4 c = makeCounter(purpose, static_cast<uint64_t>(element), sample, index);
    const auto [at, isNew] =
        owner_.try_emplace({key.k0, key.k1, c.v[0], c.v[1], c.v[2], c.v[3]}, what);
    if (!isNew && at->second != what) collisions_.push_back(what + " and " + at->second);
  }
  size_t blocks() const { return owner_.size(); }
  const std::vector<std::string> &collisions() const { return collisions_; }

 private:
  std::map<std::array<uint32_t, 6>, std::string> owner_;
  std::vector<std::string> collisions_;
};

/// The coordinates at which an array draws, as its sources document them, for a few steps of a
/// tile.
void auditArray(Audit &audit, RandomKey key, const std::string &name, int64_t cells,
                uint64_t samples) {
  for (int64_t cell = 0; cell < cells; ++cell) {
    const std::string at = name + " cell " + std::to_string(cell) + ' ';
    for (uint32_t pair = 0; pair < 16; ++pair)
      audit.use(key, Purpose::Construct, cell, 0, pair, at + "construct " + std::to_string(pair));
    for (const Purpose purpose : {Purpose::Decay, Purpose::Diffusion, Purpose::Reset}) {
      const auto index = (1U << 16) + static_cast<uint32_t>(purpose);
      audit.use(key, Purpose::Construct, cell, 0, index, at + "spread " + std::to_string(index));
    }
    for (uint64_t s = 0; s < samples; ++s) {
      const std::string eight = std::to_string(s / 8);
      audit.use(key, Purpose::CycleNoise, cell, s / 8, 0, at + "cycle noise " + eight);
      for (uint32_t pulse = 1; pulse < 31; ++pulse) {
        audit.use(key, Purpose::CyclePulse, cell, s, pulse / 8,
                  at + "pulses " + std::to_string(s) + '/' + std::to_string(pulse / 8));
      }
      audit.use(key, Purpose::Diffusion, cell, s / 8, 0, at + "diffusion " + eight);
      audit.use(key, Purpose::Reset, cell, s, 0, at + "reset " + std::to_string(s));
      for (uint64_t range = 0; range < 4;
           ++range) {  // after samples, mini-batches, resets and settings
        audit.use(key, Purpose::WriteNoise, cell, ((range << 46) + s) / 8, 0,
                  at + "write noise " + std::to_string(range) + '/' + eight);
      }
    }
  }
}

void auditTrains(Audit &audit, RandomKey key, const std::string &name, int64_t lines,
                 uint64_t samples) {
  for (int64_t line = 0; line < lines; ++line) {
    for (uint64_t s = 0; s < samples; ++s) {
      const std::string at = name + " line " + std::to_string(line) + ' ';
      for (uint32_t slot = 0; slot < 33; ++slot) {
        const std::string four = std::to_string(s / 4) + '/' + std::to_string(slot);
        audit.use(key, Purpose::XPulse, line, s / 4, slot, at + "x " + four);
        audit.use(key, Purpose::DPulse, line, s / 4, slot, at + "d " + four);
        audit.use(key, Purpose::DPulse, line, s / 4, (1U << 20) + slot,
                  at + "d, second pass " + four);
      }
      audit.use(key, Purpose::XRound, line, s, 0, at + "x rounding " + std::to_string(s));
      audit.use(key, Purpose::DRound, line, s, 0, at + "d rounding " + std::to_string(s));
    }
  }
}

TEST(Tile, Property39_NoBlockOfASmallTileServesTwoPurposes) {
  Audit audit;
  constexpr uint64_t kSamples = 20;
  for (const uint32_t tile : {0U, 1U}) {
    const std::string prefix = "tile " + std::to_string(tile) + " array ";
    for (uint32_t id = 0; id < kSlots * std::size(kRoles); ++id) {
      const Role role = kRoles[id % std::size(kRoles)];
      const auto slot = static_cast<uint32_t>(id / std::size(kRoles));
      const RandomKey key = TileKeys{7, tile}.of(slot, role);
      const std::string name = prefix + std::to_string(id);
      if (role == Role::Cells) {
        auditArray(audit, key, name, 12, kSamples);
      } else if (role == Role::Update) {
        auditTrains(audit, key, name, 4, kSamples);
      } else {
        for (int64_t element = 0; element < 4; ++element) {
          for (uint64_t s = 0; s < kSamples; ++s) {
            for (uint32_t p = static_cast<uint32_t>(Purpose::ForwardInputNoise);
                 p <= static_cast<uint32_t>(Purpose::Reinit); ++p) {
              audit.use(key, static_cast<Purpose>(p), element, s, 0,
                        name + ' ' + std::to_string(p) + '/' + std::to_string(element) + '/' +
                            std::to_string(s));
            }
          }
        }
      }
    }
  }
  EXPECT_GT(audit.blocks(), 20000u);
  EXPECT_TRUE(audit.collisions().empty()) << audit.collisions().front();
}

}  // namespace
}  // namespace RPU::testing
