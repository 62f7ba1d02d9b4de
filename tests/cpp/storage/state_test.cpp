#include "storage/state.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <utility>

namespace pulsora {
namespace {

TEST(State, KeepsTensorsWithTypeAndShape) {
  Buffer<float> buffer(Context{}, 6);
  for (int i = 0; i < 6; ++i) buffer.data()[i] = static_cast<float>(i);
  State state;
  state.put(Context{}, "w", Tensor::Type::F32, {2, 3}, buffer);
  EXPECT_EQ(state.tensors.at("w").size(), 6);
  Buffer<float> back(Context{}, 6);
  state.take(Context{}, "w", Tensor::Type::F32, {2, 3}, back);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(back.data()[i], static_cast<float>(i));
}

TEST(State, RefusesWhatDoesNotFitAndLeavesTheBuffer) {
  Buffer<float> buffer = Buffer<float>::zeros(Context{}, 6);
  State state;
  state.put(Context{}, "w", Tensor::Type::F32, {2, 3}, buffer);
  Buffer<float> target(Context{}, 6);
  for (int i = 0; i < 6; ++i) target.data()[i] = 9.0f;
  const auto message = [&](const std::string &name, Tensor::Type type,
                           const std::vector<int64_t> &shape) -> std::string {
    try {
      state.take(Context{}, name, type, shape, target);
    } catch (const StateError &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message("v", Tensor::Type::F32, {2, 3}).find("no tensor 'v'"), std::string::npos);
  EXPECT_NE(message("w", Tensor::Type::F16, {2, 3}).find("float32[2, 3] where float16[2, 3]"),
            std::string::npos);
  EXPECT_NE(message("w", Tensor::Type::F32, {3, 2}).find("float32[2, 3] where float32[3, 2]"),
            std::string::npos);
  state.tensors["w"].bytes.resize(20);
  EXPECT_NE(message("w", Tensor::Type::F32, {2, 3}).find("20 bytes where 24"), std::string::npos);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(target.data()[i], 9.0f);
}

TEST(State, CountersAreIntegersThatAreNotNegative) {
  State state;
  state.values = {{"n", Value(uint64_t{1} << 40)}, {"negative", Value(-1)}, {"text", Value("3")}};
  EXPECT_EQ(state.counter("n"), uint64_t{1} << 40);
  EXPECT_THROW(state.counter("negative"), StateError);
  EXPECT_THROW(state.counter("text"), StateError);
  EXPECT_THROW(state.counter("missing"), StateError);
  EXPECT_EQ(state.counter("n", uint64_t{1} << 40), uint64_t{1} << 40);
  EXPECT_THROW(state.counter("n", (uint64_t{1} << 40) - 1), StateError);
  state.values["n"] = Value(2);
  EXPECT_THROW(state.flag("n"), StateError);
  state.values["n"] = Value(1);
  EXPECT_TRUE(state.flag("n"));
}

State sample() {
  State state;
  Buffer<float> buffer = Buffer<float>::zeros(Context{}, 6);
  state.put(Context{}, "w", Tensor::Type::F32, {2, 3}, buffer);
  state.put(Context{}, "v", Tensor::Type::F32, {6}, buffer);
  state.put(Context{}, "empty", Tensor::Type::F32, {0}, Buffer<float>());
  state.values = {{"version", Value(3)},
                  {"map", Value(Value::Map{{"list", Value(Value::List{Value(), Value(true)})}})},
                  {"real", Value(1.0)},
                  {"text", Value("x")}};
  state.sign();
  return state;
}

TEST(State, TheChecksumIsOfEverything) {
  EXPECT_NO_THROW(sample().verify());
  const std::string checksum = sample().checksum();
  EXPECT_EQ(checksum.size(), 16U);
  const auto changed = [&](const auto &change) {
    State state = sample();
    change(state);
    EXPECT_THROW(state.verify(), StateError);
    return state.checksum() != checksum;
  };
  EXPECT_TRUE(changed([](State &s) { s.tensors["w"].bytes[5] = std::byte{1}; }));
  EXPECT_TRUE(changed([](State &s) { s.tensors["w"].shape = {3, 2}; }));
  EXPECT_TRUE(changed([](State &s) { s.tensors["w"].shape = {6}; }));
  EXPECT_TRUE(changed([](State &s) { s.tensors["w"].type = Tensor::Type::I32; }));
  EXPECT_TRUE(changed([](State &s) { s.tensors.erase("empty"); }));
  EXPECT_TRUE(changed([](State &s) { std::swap(s.tensors["w"], s.tensors["v"]); }));
  EXPECT_TRUE(changed([](State &s) { s.tensors["x"] = s.tensors["w"]; }));
  EXPECT_TRUE(changed([](State &s) { s.values["real"] = Value(1); }));
  EXPECT_TRUE(changed([](State &s) { s.values["real"] = Value(-1.0); }));
  EXPECT_TRUE(changed([](State &s) { s.values["text"] = Value("y"); }));
  EXPECT_TRUE(changed([](State &s) { s.values["text"] = Value(); }));
  EXPECT_TRUE(changed([](State &s) { s.values["new"] = Value(); }));
  EXPECT_TRUE(changed([](State &s) { s.values["map"] = Value(Value::Map{}); }));
  EXPECT_TRUE(changed([](State &s) { s.values["version"] = Value(2); }));
  EXPECT_FALSE(changed([](State &s) { s.values["checksum"] = Value("0"); }));
  EXPECT_FALSE(changed([](State &s) { s.values["checksum"] = Value(7); }));
  EXPECT_FALSE(changed([](State &s) { s.values.erase("checksum"); }));
}

TEST(State, OlderStatesHaveNoChecksum) {
  State state = sample();
  state.values.erase("checksum");
  state.values["version"] = Value(2);
  EXPECT_NO_THROW(state.verify());
  state.values["version"] = Value(4);
  EXPECT_THROW(state.verify(), StateError);
}

TEST(State, NumbersThatAreNotFiniteAreNamed) {
  const auto refusal = [](const State &state) -> std::string {
    try {
      state.requireFinite();
    } catch (const StateError &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(sample()), "");
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    State state = sample();
    std::memcpy(state.tensors["w"].bytes.data() + 4 * sizeof bad, &bad, sizeof bad);
    EXPECT_NE(refusal(state).find("tensor 'w' of the state, [2, 3]"), std::string::npos);
    EXPECT_NE(refusal(state).find("element 4"), std::string::npos);
    state = sample();
    state.values["real"] = Value(static_cast<double>(bad));
    EXPECT_NE(refusal(state).find("value 'real'"), std::string::npos);
  }
  for (const unsigned bad : {0x7C00U, 0xFC00U, 0x7E01U, 0x7BFFU}) {
    State state = sample();
    Tensor &tensor = state.tensors["half"];
    tensor.type = Tensor::Type::F16;
    tensor.shape = {2};
    tensor.bytes = {std::byte{0}, std::byte{0}, static_cast<std::byte>(bad & 0xFFU),
                    static_cast<std::byte>(bad >> 8)};
    EXPECT_EQ(refusal(state).empty(), bad == 0x7BFFU) << bad;  // the largest half float
  }
}

TEST(Value, CountsBeyondSignedIntegersStayAtTheLargest) {
  EXPECT_EQ(*Value(uint64_t{INT64_MAX}).integer(), INT64_MAX);
  EXPECT_EQ(*Value(uint64_t{INT64_MAX} + 1).integer(), INT64_MAX);
  EXPECT_EQ(*Value(~uint64_t{0}).integer(), INT64_MAX);
}

}  // namespace
}  // namespace pulsora
