#include "parameters/field.h"

#include <gtest/gtest.h>
#include <limits>
#include <string>

#include "devices/constant_step.h"
#include "tile/tile_config.h"

namespace pulsora {
namespace {

template <class Error, class Call>
std::string errorOf(const Call &call) {
  try {
    call();
  } catch (const Error &error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

std::string updateError(Value::Map values) {
  return errorOf<ConfigError>(
      [&] { readParams<UpdateParameters>(Value(std::move(values)), "update"); });
}

void expectParts(const std::string &text, const std::vector<std::string> &parts) {
  for (const std::string &part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(Field, ReadsWhatIsGivenAndKeepsDefaults) {
  const auto p = readParams<UpdateParameters>(
      Value(Value::Map{
          {"desired_bl", 7.0}, {"res", 1}, {"sto_round", true}, {"pulse_type", "mean_count"}}),
      "update");
  EXPECT_EQ(p.desired_bl, 7);
  EXPECT_EQ(p.res, 1.0f);
  EXPECT_TRUE(p.sto_round);
  EXPECT_EQ(p.pulse_type, PulseType::MeanCount);
  EXPECT_TRUE(p.update_management);
  EXPECT_EQ(p.um_grad_scale, 1.0f);
}

TEST(Field, WritesAllMembersAndReadsThemBack) {
  UpdateParameters p;
  p.res = 0.001f;
  p.pulse_type = PulseType::None;
  const Value written = writeParams(p);
  EXPECT_EQ(*written.map()->at("res").real(), 0.001);
  EXPECT_EQ(written.map()->size(), describeParams<UpdateParameters>().size());
  EXPECT_EQ(writeParams(readParams<UpdateParameters>(written, "update")), written);
  const Value tile = writeParams(TileConfig{});
  EXPECT_EQ(writeParams(readParams<TileConfig>(tile, "")), tile);
}

TEST(Field, TheLargestAndSmallestNumbersAreReadAsTheyAreWritten) {
  for (const float number : {1e15f, std::numeric_limits<float>::denorm_min()}) {
    ConstantStep::Params p;
    p.diffusion = number;
    EXPECT_EQ(readParams<ConstantStep::Params>(writeParams(p), "device").diffusion, number);
  }
  expectParts(updateError({{"res", 1.1e15}}), {"update.res", "beyond single precision"});
}

TEST(Field, UnknownNamesGetASuggestion) {
  expectParts(
      updateError({{"desired_b", 3}}),
      {"update.desired_b", "not a parameter of UpdateParameters", "did you mean 'desired_bl'"});
  const std::string far = updateError({{"zzzzzzzzzzzz", 3}});
  expectParts(far, {"known: 'pulse_type'"});
  EXPECT_EQ(far.find("did you mean"), std::string::npos);
  expectParts(updateError({{"pulse_type", "mean_cont"}}),
              {"update.pulse_type is 'mean_cont'", "did you mean 'mean_count'"});
}

TEST(Field, RangesAndTypesAreCheckedWithTheValueNamed) {
  expectParts(updateError({{"desired_bl", 0}}), {"update.desired_bl is 0", ">= 1 and <= 65536"});
  expectParts(updateError({{"desired_bl", 65537}}), {"update.desired_bl is 65537"});
  expectParts(updateError({{"desired_bl", 2.5}}), {"update.desired_bl is 2.5", "whole number"});
  expectParts(updateError({{"um_grad_scale", 0.0}}), {"update.um_grad_scale is 0", "> 0"});
  expectParts(updateError({{"um_grad_scale", 1e-60}}),
              {"update.um_grad_scale is 0"});  // 0 in single precision
  expectParts(updateError({{"res", 1e39}}), {"update.res", "single precision"});
  expectParts(updateError({{"res", std::numeric_limits<double>::quiet_NaN()}}),
              {"update.res is nan", "finite"});
  expectParts(updateError({{"res", "much"}}), {"update.res is 'much'", "number"});
  expectParts(updateError({{"sto_round", 1}}), {"update.sto_round is 1", "True or False"});
  expectParts(updateError({{"pulse_type", 3}}), {"update.pulse_type is 3"});
  expectParts(errorOf<ConfigError>([] { readParams<UpdateParameters>(Value(3), "update"); }),
              {"update is 3"});
}

TEST(Field, PathsReachIntoNestedStructsAndDevices) {
  const auto tileError = [](Value::Map values) {
    return errorOf<ConfigError>([&] { readParams<TileConfig>(Value(std::move(values)), ""); });
  };
  expectParts(tileError({{"update", Value::Map{{"desired_bl", -1}}}}), {"update.desired_bl is -1"});
  expectParts(tileError({{"device", Value::Map{{"model", "ConstantStep"}, {"dw_min", -1.0}}}}),
              {"device.dw_min is -1", "> 0"});
  expectParts(tileError({{"device", Value::Map{{"model", "ConstantStp"}}}}),
              {"device.model is 'ConstantStp'", "did you mean 'ConstantStep'"});
  expectParts(tileError({{"device", Value::Map{{"dw_min", 1.0}}}}),
              {"device names no device model"});
  expectParts(tileError({{"kind", "lrtt"},
                         {"visible", Value::Map{{"model", "SoftBounds"}, {"w_max", -1.0}}}}),
              {"visible.w_max is -1"});
  expectParts(tileError({{"kind", "lrtt"}, {"lora_alpha", "automatic"}}),
              {"lora_alpha is 'automatic'", "'auto'"});
  expectParts(tileError({{"kind", "lrt"}}), {"kind is 'lrt'", "did you mean 'lrtt'"});
  expectParts(tileError({{"rank", 4}}), {"rank is not a parameter of SingleConfig"});
  expectParts(tileError({{"kind", "ideal"}, {"update", Value::Map{}}}),
              {"update is not a parameter of IdealConfig"});
  expectParts(tileError({{"device",
                          Value::Map{{"model", "ConstantStep"}, {"w_max", 0.0}, {"w_min", 0.0}}}}),
              {"device.w_max", "device.w_min", "no range"});
}

TEST(Field, StructsFilledInByCodeAreCheckedToo) {
  TileConfig config;
  config.update.desired_bl = 0;
  expectParts(errorOf<ConfigError>([&] { checkParams(config, "tile"); }),
              {"tile.update.desired_bl is 0"});
}

struct ListHolder {
  static constexpr const char *kName = "ListHolder";
  FloatList nodes;
  template <class Visitor>
  static void fields(Visitor &f) {
    f(&ListHolder::nodes, "nodes", positive(), "", "Numbers.");
  }
};

struct DeviceListHolder {
  static constexpr const char *kName = "DeviceListHolder";
  DeviceList devices;
  template <class Visitor>
  static void fields(Visitor &f) {
    f(&DeviceListHolder::devices, "devices", anyNumber(), "", "Devices.");
  }
};

TEST(Field, ListsOfDevicesAreReadInOrderAndCheckedEntryByEntry) {
  const auto read = [](Value devices) {
    return readParams<DeviceListHolder>(Value(Value::Map{{"devices", std::move(devices)}}), "p")
        .devices;
  };
  const auto refusal = [&](Value devices) {
    return errorOf<ConfigError>([&] { read(std::move(devices)); });
  };
  const Value fine(Value::Map{{"model", "SoftBounds"}, {"dw_min", 0.01}});
  const Value coarse(Value::Map{{"model", "ConstantStep"}, {"dw_min", 0.1}});
  const DeviceList devices = read(Value::List{fine, coarse, fine});
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[0].model().name, "SoftBounds");
  EXPECT_EQ(devices[1].common().dw_min, 0.1f);
  EXPECT_EQ(read(devices.write()).write(), devices.write());
  EXPECT_EQ(read(Value::List(8, fine)).size(), 8U);
  expectParts(refusal(Value::List{}), {"p.devices has 0 devices", "1 to 8"});
  expectParts(refusal(Value::List(9, fine)), {"p.devices has 9 devices"});
  expectParts(refusal(fine), {"p.devices is {...}", "list of devices"});
  expectParts(refusal(Value::List{fine, 3}), {"p.devices[1] is 3"});
  expectParts(refusal(Value::List{fine, Value(Value::Map{{"model", "SoftBouns"}})}),
              {"p.devices[1].model is 'SoftBouns'", "did you mean 'SoftBounds'"});
  expectParts(errorOf<ConfigError>([] { DeviceList(std::vector<DeviceParams>(9)); }),
              {"has 9 devices"});
  const FieldInfo row = describeParams<DeviceListHolder>().front();
  EXPECT_EQ(row.type, "devices");
  EXPECT_EQ(row.range, "1 to 8 devices");
  EXPECT_EQ(row.defaultValue.list()->size(), 1U);
}

TEST(Field, ListsAreCheckedEntryByEntry) {
  const auto read = [](Value::List list) {
    return readParams<ListHolder>(Value(Value::Map{{"nodes", Value(std::move(list))}}), "p");
  };
  EXPECT_EQ(read({1, 2.5}).nodes.values[1], 2.5f);
  expectParts(errorOf<ConfigError>([&] { read({1, 0}); }), {"p.nodes[1] is 0", "> 0"});
  expectParts(errorOf<ConfigError>([&] { read({1, "x"}); }), {"p.nodes[1] is 'x'"});
  expectParts(errorOf<ConfigError>([&] { read(Value::List(65, Value(1))); }),
              {"p.nodes has 65 entries", "64"});
  ListHolder filled;
  filled.nodes.count = 1;
  filled.nodes.values[0] = -1.0f;
  expectParts(errorOf<ConfigError>([&] { checkParams(filled, "p"); }), {"p.nodes[0] is -1"});
}

TEST(Field, DescribesTheTable) {
  const std::vector<FieldInfo> rows = describeParams<UpdateParameters>();
  EXPECT_EQ(rows[0].name, "pulse_type");
  EXPECT_EQ(rows[0].type, "enum");
  EXPECT_EQ(rows[0].choices.size(), 6u);
  EXPECT_EQ(*rows[0].defaultValue.text(), "stochastic_compressed");
  EXPECT_EQ(rows[1].type, "int");
  EXPECT_EQ(rows[1].range, ">= 1 and <= 65536");
  for (const FieldInfo &row : rows) EXPECT_FALSE(row.doc.empty()) << row.name;
}

TEST(Field, WholeNumbersOutOfRangeAreShownInFull) {
  for (const int64_t number : {int64_t{16777217}, (int64_t{1} << 40) + 1, -(int64_t{1} << 62) - 1})
    expectParts(updateError({{"desired_bl", Value(number)}}),
                {"desired_bl is " + std::to_string(number) + "; it must be >= 1 and <= 65536"});
  EXPECT_EQ(describe(between(0, 4294967295.0)), ">= 0 and <= 4294967295");
  EXPECT_EQ(describe(between(0, 1e15)), ">= 0 and <= 1e+15");
  EXPECT_EQ(describe(between(-0.1, 12.25)), ">= -0.1 and <= 12.25");
}

TEST(Field, DecimalsOfFloatsAreShort) {
  for (const float value : {0.001f, 1.0f / 3.0f, 16777216.0f, 1e-38f, 0.1f}) {
    EXPECT_EQ(static_cast<float>(shortestDouble(value)), value);
  }
  EXPECT_EQ(shortestDouble(0.001f), 0.001);
  EXPECT_EQ(joinPath("", "a"), "a");
  EXPECT_EQ(joinPath("a", "b"), "a.b");
  EXPECT_EQ(describe(anyNumber()), "any finite number");
  EXPECT_EQ(describe(positive()), "> 0");
}

}  // namespace
}  // namespace pulsora
