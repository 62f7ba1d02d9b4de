#include "tile/tile_config.h"

#include <gtest/gtest.h>

#include "compounds/single.h"
#include "lrtt/parameters.h"

namespace pulsora::testing {
namespace {

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

}  // namespace
}  // namespace pulsora::testing
