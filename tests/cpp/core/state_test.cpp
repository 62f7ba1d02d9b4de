#include "core/state.h"

#include <gtest/gtest.h>
#include <string>

namespace RPU {
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
}

}  // namespace
}  // namespace RPU
