
#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "compounds/ideal.h"
#include "tile/tile.h"
#include "tile/tile_test_util.h"
#include "util/pulse_test_util.h"
#include "util/state_test_util.h"

namespace pulsora::testing {
namespace {

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
  cut.update(b.xRows(0, 4), b.dRows(0, 4), 0.1f, BatchEnd::Later);
  Tile loaded = makeTile(GetParam());
  loaded.loadState(cut.state());
  for (Tile *tile : {&cut, &loaded}) {
    tile->update(b.xRows(4, 6), b.dRows(4, 6), 0.1f);
  }
  EXPECT_EQ(run(cut, 0, 2), run(loaded, 0, 2));
}

/// loadState() refuses `bad`, and the tile does not change. `bad` is signed first, so that the
/// checksum is not the reason.
void expectRefused(Tile &tile, State bad, const std::string &what) {
  const State before = tile.state();
  bad.sign();
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
    if (name == State::kChecksum) continue;
    State bad = good;
    bad.values.erase(name);
    if (!isLaterCount(name)) expectRefused(tile, bad, "without " + name);
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
  foreign = good;
  foreign.values["stranger"] = Value(1);
  expectRefused(tile, foreign, "with a strange value");
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

TEST_P(TileOfKind, ADamagedStateIsRefusedAndChangesNothing) {
  Tile source = makeTile(GetParam());
  run(source, 0, 2);
  const State good = source.state();
  Tile tile = makeTile(GetParam());
  run(tile, 4, 1);
  const State before = tile.state();
  const auto expectDamaged = [&](const State &bad, const std::string &what) {
    EXPECT_THROW(tile.loadState(bad), StateError) << what;
    EXPECT_THROW(Tile::fromState(bad, onCpu(1)), StateError) << what;
    EXPECT_EQ(tile.state().values, before.values) << what;
  };
  for (const auto &[name, tensor] : good.tensors) {
    State bad = good;
    bad.tensors[name].bytes.back() ^= std::byte{1};
    expectDamaged(bad, "another bit of " + name);
    if (tensor.type != Tensor::Type::F32 && tensor.type != Tensor::Type::F16) continue;
    bad = good;
    bad.tensors[name].bytes[tensor.bytes.size() - 1] = std::byte{0x7F};
    bad.tensors[name].bytes[tensor.bytes.size() - 2] = std::byte{0x80};
    bad.sign();
    expectDamaged(bad, "not finite: " + name);
  }
  for (const auto &[name, most] : {std::pair{"forward_samples", uint64_t{1} << 48},
                                   {"backward_samples", uint64_t{1} << 48},
                                   {"update_samples", uint64_t{1} << 44},
                                   {"mini_batches", uint64_t{1} << 46},
                                   {"events", uint64_t{1} << 45}}) {
    State bad = good;
    bad.values[name] = Value(most + 1);
    bad.sign();
    expectDamaged(bad, std::string("too large: ") + name);
    bad.values[name] = Value(most);
    bad.sign();
    EXPECT_NO_THROW(Tile::fromState(bad, onCpu(1))) << name;
  }
  State bad = good;
  bad.values.erase(State::kChecksum);
  expectDamaged(bad, "without a checksum");
  bad.values["version"] = Value(2);  // which had none
  EXPECT_NO_THROW(Tile::fromState(bad, onCpu(1)));
}

TEST_P(TileOfKind, AStateSaysWhatTileItBelongsTo) {
  Tile source = makeTile(GetParam());
  run(source, 0, 2);
  const State good = source.state();
  Tile made = Tile::fromState(good, onCpu(1));
  EXPECT_EQ(made.seed(), source.seed());
  EXPECT_EQ(made.tileId(), source.tileId());
  EXPECT_EQ(run(made, 2, 2), run(source, 2, 2));
  const Value values[] = {Value(),
                          Value(-1),
                          Value(int64_t{1} << 40),
                          Value(0.5),
                          Value("x"),
                          Value("1 "),
                          Value("-1"),
                          Value(""),
                          Value("99999999999999999999"),
                          Value(Value::List{Value(1)})};
  for (const char *name : {"d_size", "x_size", "tile_id", "seed", "config"}) {
    for (const Value &value : values) {
      State bad = good;
      bad.values[name] = value;
      bad.sign();
      EXPECT_THROW(Tile::fromState(bad, onCpu(1)), StateError) << name << value.describe();
    }
  }
  EXPECT_THROW(Tile::fromState(good, onCpu(0)), ConfigError);
}

TEST(Tile, WhatIsNotFiniteIsNotSaved) {
  TileConfig config;
  config.compound = IdealParams{};
  Tile tile(2, 2, config, 1, 0, onCpu(1));
  const State good = tile.state();
  const Numbers large(2, 1e19f);
  for (int i = 0; i < 4; ++i)
    tile.update(rowMajor<const float>(large.data(), 1, 2),
                rowMajor<const float>(large.data(), 1, 2), 1.0f);
  try {
    tile.state();
    ADD_FAILURE();
  } catch (const StateError &error) {
    EXPECT_NE(std::string(error.what()).find("tensor 'weights'"), std::string::npos);
  }
  tile.loadState(good);  // the way back
  EXPECT_NO_THROW(tile.state());
}

}  // namespace
}  // namespace pulsora::testing
