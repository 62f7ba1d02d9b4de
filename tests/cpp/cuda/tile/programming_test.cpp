#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "cuda/cuda_test_util.h"
#include "inference/inference_device.h"
#include "tile/tile_programming.h"

// Programmed arrays on a GPU have the bits of the CPU: conductances, weights, compensation, reads.

namespace pulsora {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): test helpers

constexpr int64_t kOut = 45;
constexpr int64_t kIn = 70;

struct Result {
  std::vector<std::vector<float>> values;
  State state;
};

Result programmed(const Context &context, const TileConfig &config) {
  Tile tile(kOut, kIn, config, 5, 2, context);
  const Batch batch = randomBatch(16, kIn, kOut, 4);
  const DeviceBatch on(context, batch);
  std::vector<float> w;
  for (int64_t i = 0; i < kOut * kIn; ++i)
    w.push_back(0.3f * std::sin(static_cast<float>(i) * 1.7f));
  const DeviceMatrix weights(context, rowMajor<const float>(w.data(), kOut, kIn));
  tile.setWeights(weights.view());
  tile.update(on.x.view(), on.d.view(), 0.01f);
  Result result;
  const auto look = [&] {
    DeviceMatrix y(context, 16, kOut), dx(context, 16, kIn), seen(context, kOut, kIn);
    tile.forward(on.x.view(), y.view());
    tile.backward(on.d.view(), dx.view());
    tile.getWeights(seen.view());
    for (const DeviceMatrix *each : {&y, &dx, &seen}) result.values.push_back(each->host(context));
    if (!tile.programming().isProgrammed()) return;
    result.values.push_back(tile.programming().compensation());
    const int64_t devices = tile.programming().devicesOfCell();
    for (const Conductances which :
         {Conductances::Target, Conductances::Programmed, Conductances::Now}) {
      DeviceMatrix g(context, kOut * kIn, devices);
      tile.programming().getConductances(which, g.view());
      result.values.push_back(g.host(context));
    }
  };
  look();
  tile.programming().program(3);
  look();
  for (const double time : {1.0, 3600.0}) {
    tile.programming().drift(time, 1);
    look();
  }
  tile.programming().program(4, 1, 60.0);
  look();
  result.state = tile.state();
  return result;
}

TEST(CudaProgramming, Property61_HasTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  for (const NoiseModel &model : noiseModels()) {
    for (const char *cell : {"pair", "two_sided_pair", "pairs", "single", "slices", "table"}) {
      const std::string kind = cell;
      Value::Map map{{"kind", "inference"},
                     {"cell", kind},
                     {"noise_model", Value(Value::Map{{"model", model.name}})},
                     {"stuck_low", 0.02},
                     {"stuck_high", 0.01}};
      if (kind == "pairs") {
        map["significance"] = Value(Value::List{1.0, 2.0, 4.0});
        map["write"] = Value("pulses");
        map["device"] = Value(Value::Map{{"model", "SoftBounds"}, {"write_noise_std", 0.5}});
      }
      if (kind == "single") {
        map["cell_reference"] = Value("column");
        map["single_span"] = Value("data");
      }
      if (kind == "table") {
        map["table_w"] = Value(Value::List{-1.0, -0.4, 0.0, 0.5, 1.0});
        map["table_g"] = Value(Value::List{0.05, 0.2, 0.5, 0.7, 0.95, 0.85, 0.52, 0.5, 0.3, 0.15});
      }
      if (kind == "slices") map["backward"] = Value(Value::Map{{"out_noise", 0.1}});
      if (kind == "two_sided_pair") {
        map["compensation"] = Value("per_output");
        map["cell_bits"] = Value(5);
        map["scaling_per"] = Value("tile");
      }
      // A Shift model has numbers up to its last time only.
      if (model.name == "Shift")
        map["noise_model"] = Value(Value::Map{{"model", model.name}, {"extrapolate", true}});
      const auto config = readParams<TileConfig>(Value(map), "");
      const Result cpu = programmed(cpuContext(), config);
      const Result gpu = programmed(reproducibleGpu(), config);
      ASSERT_EQ(cpu.values.size(), gpu.values.size());
      for (size_t i = 0; i < cpu.values.size(); ++i)
        ASSERT_TRUE(sameBits(cpu.values[i], gpu.values[i]))
            << model.name << " " << kind << " " << i;
      ASSERT_TRUE(sameState(cpu.state, gpu.state));
    }
  }
}

TEST(CudaProgramming, Property65_ReadsAtManyPointsHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  const auto read = [](const Context &context, const TileConfig &config) {
    Tile tile(kOut, kIn, config, 5, 2, context);
    const Batch batch = randomBatch(18, kIn, kOut, 4);
    const DeviceBatch on(context, batch);
    std::vector<float> w;
    for (int64_t i = 0; i < kOut * kIn; ++i)
      w.push_back(0.3f * std::sin(static_cast<float>(i) * 1.7f));
    const DeviceMatrix weights(context, rowMajor<const float>(w.data(), kOut, kIn));
    tile.setWeights(weights.view());
    std::vector<std::vector<float>> values;
    DeviceMatrix y(context, 18, kOut), seen(context, 18, kIn);
    tile.programming().convertInputs(on.x.view(), seen.view());
    values.push_back(seen.host(context));
    const auto readPoints = [&](const std::vector<ProgrammedPoint> &points) {
      tile.programming().programMany(points);
      for (int i = 0; i < 2; ++i) {
        tile.forward(on.x.view(), y.view(), {0, -1, true});
        values.push_back(y.host(context));
      }
    };
    readPoints({{3, 0.0, 0, 4}, {3, 60.0, 0, 4}, {8, 1e5, 1, 4}});
    // More readings of a programming than one launch makes.
    std::vector<ProgrammedPoint> many;
    for (uint64_t k = 0; k < 18; ++k) many.push_back({2, 60.0 * static_cast<double>(k), k % 3, 0});
    readPoints(many);
    const int64_t devices = tile.programming().devicesOfCell();
    DeviceMatrix g(context, kOut * kIn, devices);
    tile.programming().getConductances(Conductances::Programmed, g.view());
    tile.programming().programMeasured(g.view(), 1);
    tile.programming().drift(3600.0);
    tile.forward(on.x.view(), y.view(), {0, -1, true});
    values.push_back(y.host(context));
    values.push_back(tile.programming().scales());
    return values;
  };
  const auto compare = [&](const Value::Map &settings) {
    Value::Map map = settings;
    map["kind"] = Value("inference");
    map["forward"] = Value(Value::Map{{"out_noise_std", 0.2}});
    const auto config = readParams<TileConfig>(Value(map), "");
    const auto cpu = read(cpuContext(), config);
    const auto gpu = read(reproducibleGpu(), config);
    for (size_t i = 0; i < cpu.size(); ++i) ASSERT_TRUE(sameBits(cpu[i], gpu[i])) << i;
  };
  for (const double window : {0.0, 1e-3}) {
    for (const double quantile : {1.0, 0.8}) {
      for (const char *per : {"output", "tile"})
        compare({{"read_window", window}, {"scaling_quantile", quantile}, {"scaling_per", per}});
    }
    // Single devices, a fitted table, and pairs from whose stuck devices nothing is read.
    compare({{"read_window", window}, {"cell", "single"}, {"compensation", "exact_reference"}});
    compare(
        {{"read_window", window},
         {"compensation", "none"},
         {"stuck_low", 0.1},
         {"noise_model", Value(Value::Map{{"model", "PowerLaw"},
                                          {"g", Value(Value::List{0.0, 0.4, 1.0})},
                                          {"sigma", Value(Value::List{0.5, 0.7, 0.6})},
                                          {"nu_mean", Value(Value::List{0.09, 0.05, 0.04})},
                                          {"nu_std", Value(Value::List{0.02, 0.01, 0.01})},
                                          {"read_noise", Value(Value::List{0.1, 0.05, 0.02})}})}});
    for (const char *converters : EnumNames<SliceConverters>::kNames) {
      compare({{"read_window", window},
               {"cell", "slices"},
               {"slice_converters", converters},
               {"compensation", "per_output"}});
    }
  }
}

TEST(CudaProgramming, Property63_TrainingReadsHaveTheBitsOfTheCpu) {
  PULSORA_REQUIRE_GPU();
  const auto trained = [](const Context &context, const TileConfig &config) {
    Tile tile(kOut, kIn, config, 5, 2, context);
    const Batch batch = randomBatch(16, kIn, kOut, 4);
    const DeviceBatch on(context, batch);
    std::vector<float> w;
    for (int64_t i = 0; i < kOut * kIn; ++i)
      w.push_back(0.3f * std::sin(static_cast<float>(i) * 1.7f));
    const DeviceMatrix weights(context, rowMajor<const float>(w.data(), kOut, kIn));
    std::vector<std::vector<float>> values;
    for (int step = 0; step < 3; ++step) {
      tile.programming().take(weights.view());
      DeviceMatrix y(context, 16, kOut), dx(context, 16, kIn), plain(context, 16, kOut);
      tile.forward(on.x.view(), y.view());
      tile.forward(on.x.view(), plain.view(), {0, -1, true});
      tile.programming().see(static_cast<uint64_t>(16 * step));
      tile.backward(on.d.view(), dx.view());
      for (const DeviceMatrix *each : {&y, &dx, &plain}) values.push_back(each->host(context));
    }
    return values;
  };
  for (const char *modifier : EnumNames<Modifier>::kNames) {
    for (const char *per : {"output", "tile"}) {
      const auto config = readParams<TileConfig>(Value(Value::Map{{"kind", "inference"},
                                                                  {"modifier", modifier},
                                                                  {"modifier_res", 0.03},
                                                                  {"modifier_sto_round", true},
                                                                  {"modifier_per", per},
                                                                  {"drop_connect", 0.1}}),
                                                 "");
      const auto cpu = trained(cpuContext(), config);
      const auto gpu = trained(reproducibleGpu(), config);
      for (size_t i = 0; i < cpu.size(); ++i)
        ASSERT_TRUE(sameBits(cpu[i], gpu[i])) << modifier << " " << per << " " << i;
    }
  }
}

}  // namespace
}  // namespace pulsora
