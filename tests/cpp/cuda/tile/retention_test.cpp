#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "noise_models/power_law.h"
#include "tile/tile.h"

// Pulsed arrays at an age have the bits of the CPU on a GPU, and so does what training makes of
// them.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr int64_t kOut = 45;
constexpr int64_t kIn = 70;
constexpr int64_t kSamples = 12;

struct Result {
  std::vector<std::vector<float>> values;
  State state;
};

Result aged(const Context &context, const TileConfig &config) {
  Tile tile(kOut, kIn, config, 5, 2, context);
  std::vector<float> w;
  for (int64_t i = 0; i < kOut * kIn; ++i)
    w.push_back(0.3f * std::sin(static_cast<float>(i) * 1.7f));
  const DeviceMatrix weights(context, rowMajor<const float>(w.data(), kOut, kIn));
  tile.setWeights(weights.view());
  Result result;
  const auto look = [&] {
    DeviceMatrix seen(context, kOut, kIn);
    tile.getWeights(seen.view());
    result.values.push_back(seen.host(context));
    for (const std::string &name : tile.arrayNames()) {
      const PulsedDevice &array = tile.array(name);
      DeviceMatrix values(context, array.rows(), array.cols());
      tile.getArray(name, values.view());
      result.values.push_back(values.host(context));
    }
  };
  for (int step = 0; step < 4; ++step) {
    const Batch batch = randomBatch(kSamples, kIn, kOut, static_cast<uint64_t>(step));
    const DeviceBatch on(context, batch);
    DeviceMatrix y(context, kSamples, kOut), dx(context, kSamples, kIn);
    tile.forward(on.x.view(), y.view());
    tile.backward(on.d.view(), dx.view());
    for (const DeviceMatrix *each : {&y, &dx}) result.values.push_back(each->host(context));
    tile.update(on.x.view(), on.d.view(), 0.05f);
    look();
    tile.drift(std::pow(10.0, step), static_cast<uint64_t>(step));
    look();
  }
  result.state = tile.state();
  return result;
}

/// Settings with which every array drifts by a model.
Value::Map drifting(const CompoundModel &model, const Value &law) {
  Value::Map values{{"kind", model.kind}};
  for (const FieldInfo &field : model.fields) {
    if (field.name == "retention" || field.name == "retention_fast") values[field.name] = law;
    if (field.name == "rank") values[field.name] = Value(3);
    if (field.name == "transfer_every" && field.type != "float") values[field.name] = Value(2);
    if (field.type == "device")
      values[field.name] = Value(Value::Map{{"model", Value("SoftBounds")},
                                            {"dw_min", Value(0.005)},
                                            {"write_noise_std", Value(2.0)}});
  }
  return values;
}

void compare(const Value::Map &values) {
  const auto config = readParams<TileConfig>(Value(values), "");
  const Result cpu = aged(cpuContext(), config);
  const Result gpu = aged(reproducibleGpu(), config);
  ASSERT_EQ(cpu.values.size(), gpu.values.size());
  for (size_t i = 0; i < cpu.values.size(); ++i)
    ASSERT_TRUE(sameBits(cpu.values[i], gpu.values[i])) << i;
  EXPECT_TRUE(sameState(cpu.state, gpu.state));
}

TEST(CudaRetention, Property69_HasTheBitsOfTheCpuForEveryCompound) {
  PULSORA_REQUIRE_GPU();
  PowerLaw::Params law;
  law.nu_std = listOf(0.02f, 0.01f);
  law.read_noise = listOf(0.02f, 0.01f);
  for (const CompoundModel &model : compoundModels()) {
    const Value::Map values = drifting(model, NoiseModelParams(law).write());
    if (values.count("retention") == 0) continue;
    for (const char *rule : {"none", "global", "per_output"}) {
      SCOPED_TRACE(model.kind + " " + rule);
      Value::Map compensated = values;
      compensated["retention_compensation"] = Value(rule);
      compare(compensated);
    }
  }
}

TEST(CudaRetention, Property69_HasTheBitsOfTheCpuForEveryModelAndCell) {
  PULSORA_REQUIRE_GPU();
  for (const NoiseModel &model : noiseModels()) {
    Value::Map law{{"model", model.name}};
    for (const FieldInfo &field : model.fields)
      if (field.name == "extrapolate") law[field.name] = Value(true);  // to the latest age
    for (const char *cell : {"pair", "two_sided_pair", "single"}) {
      SCOPED_TRACE(model.name + " " + cell);
      compare(
          {{"kind", Value("single")}, {"retention", Value(law)}, {"retention_cell", Value(cell)}});
    }
  }
}

}  // namespace
}  // namespace pulsora
