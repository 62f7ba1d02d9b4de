#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "tile/tile_test_util.h"
#include "util/message_test_util.h"
#include "util/state_test_util.h"

// The ages of a tile's arrays, each at its own.

namespace pulsora::testing {
namespace {

/// W, A and B that drift by models of their own; W is old, A and B were pulsed later.
Tile tileOfTwoAges() {
  const Value slow(Value::Map{{"model", Value("PowerLaw")}});
  const Value fast(Value::Map{{"model", Value("ReRamWan2022")}});  // numbers up to 172800 s
  const Value cells(Value::Map{{"model", Value("SoftBounds")}});   // no decay: it ends an age
  const TileConfig config = configOf("lrtt", {{"retention", slow},
                                              {"retention_fast", fast},
                                              {"transfer_every", Value(0)},
                                              {"visible", cells},
                                              {"fast", cells}});
  Tile tile(kRows, kCols, config, 11, 3, onCpu(1));
  run(tile, 0, 2);
  tile.drift(150000.0, 2);
  run(tile, 2, 1);
  tile.drift(100000.0, 3, AgeFrom::Now);
  return tile;
}

TEST(Ages, AreThoseOfEachArrayAndAreSetAgain) {
  Tile tile = tileOfTwoAges();
  ASSERT_EQ(tile.arrayNames(), (std::vector<std::string>{"visible", "fast_a", "fast_b"}));
  const std::vector<Age> ages = tile.ages();
  ASSERT_EQ(ages.size(), 3U);
  EXPECT_EQ(ages[0].time, 250000.0);  // beyond the numbers of the model of A and B
  EXPECT_EQ(ages[1].time, 100000.0);
  EXPECT_EQ(ages[2].time, 100000.0);
  for (const Age &age : ages) EXPECT_EQ(age.redraw, 3U);

  Tile same = tileOfTwoAges();
  tile.drift(1.0);
  EXPECT_FALSE(sameState(tile.state(), same.state()));
  tile.setAges(ages);
  EXPECT_TRUE(sameState(tile.state(), same.state()));
  EXPECT_EQ(run(tile, 3, 2), run(same, 3, 2));
}

TEST(Ages, BadOnesAreRefusedAndChangeNothing) {
  Tile tile = tileOfTwoAges();
  const Tile same = tileOfTwoAges();
  const std::vector<std::pair<std::vector<Age>, std::string>> refused = {
      {{{1.0, 0}, {1.0, 0}}, "ages has 2 entries, but the tile has 3 arrays"},
      {{{1.0, 0}, {172801.0, 0}, {1.0, 0}}, "the retention ReRamWan2022 has numbers up to"},
      {{{1.0, 0}, {1.0, 0}, {-1.0, 0}}, "time is -1; give seconds since the last pulse"},
      {{{1.0, 0}, {1.0, 0}, {1.0, uint64_t{1} << 40}}, "redraw is 1099511627776"},
  };
  for (const auto &[ages, words] : refused) {
    const std::string said = messageOf([&tile, &bad = ages] { tile.setAges(bad); });
    EXPECT_NE(said.find(words), std::string::npos) << said;
    EXPECT_TRUE(sameState(tile.state(), same.state())) << words;
  }
  Tile plain = makeTile("single");
  const std::string said = messageOf([&] { plain.setAges({{1.0, 0}}); });
  EXPECT_NE(said.find("give its configuration a retention"), std::string::npos) << said;
}

}  // namespace
}  // namespace pulsora::testing
