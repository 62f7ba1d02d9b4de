#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "array/computed_cells.h"
#include "compounds/compound_model.h"
#include "noise_models/power_law.h"
#include "tile/tile.h"
#include "tile/tile_adapter.h"

// Trainings of tiles in which every array has computed cells, on any backend.

namespace pulsora::testing {

/// Whether a kind has arrays of pulsed cells, beside those that last only while they are written.
inline bool hasDevices(const CompoundModel &model) {
  if (model.kind == "inference") return false;
  for (const FieldInfo &field : model.fields)
    if (field.type == "device" || field.type == "devices") return true;
  return false;
}

/// Settings of a kind in which all devices have such cells, and with transfers `every` so many
/// mini-batches.
inline Value::Map settingsWith(const CompoundModel &model, const std::string &cells,
                               Value::Map device = {}, int every = 2) {
  Value::Map values{{"kind", model.kind}};
  device.try_emplace("model", Value("SoftBounds"));
  device.try_emplace("dw_min", Value(0.005));
  device.try_emplace("reset_dtod", Value(0.02));
  device["cells"] = Value(cells);
  for (const FieldInfo &field : model.fields) {
    if (field.name == "rank") values[field.name] = Value(3);
    if (field.name == "transfer_every" && field.type != "float") values[field.name] = Value(every);
    if (field.type == "device") values[field.name] = Value(device);
    if (field.type == "devices") values[field.name] = Value(Value::List{Value(device)});
  }
  return values;
}

inline TileConfig configOf(const Value::Map &values) {
  return readParams<TileConfig>(savedConfig(Value(values)), "");  // without unused devices
}

struct CellTraining {
  std::vector<std::vector<float>> values;
  State state;
};

/// A training with writes, resets and an age; `saves`: saved and loaded after each step.
inline CellTraining trainCells(const Context &context, const TileConfig &config, bool saves) {
  constexpr int64_t kOut = 21, kIn = 34, kSamples = 12;
  Tile tile(kOut, kIn, config, 5, 2, context);
  std::vector<float> w;
  for (int64_t i = 0; i < kOut * kIn; ++i)
    w.push_back(0.3f * std::sin(static_cast<float>(i) * 1.7f));
  const DeviceMatrix weights(context, rowMajor<const float>(w.data(), kOut, kIn));
  tile.setWeights(weights.view());
  CellTraining result;
  for (int step = 0; step < 4; ++step) {
    const DeviceBatch on(context, randomBatch(kSamples, kIn, kOut, static_cast<uint64_t>(step)));
    DeviceMatrix y(context, kSamples, kOut), dx(context, kSamples, kIn);
    tile.forward(on.x.view(), y.view());
    tile.backward(on.d.view(), dx.view());
    for (const DeviceMatrix *each : {&y, &dx}) result.values.push_back(each->host(context));
    tile.update(on.x.view(), on.d.view(), 0.05f);
    if (tile.retains()) tile.drift(std::pow(10.0, step));
    if (step == 2) tile.resetColumns(tile.arrayNames().front(), 2, 9, 0.5f);
    DeviceMatrix seen(context, kOut, kIn);
    tile.getWeights(seen.view());
    result.values.push_back(seen.host(context));
    if (saves) tile = Tile::fromState(tile.state(), context);
  }
  for (const std::string &name : tile.arrayNames()) {
    const Buffer<float> planes = tile.array(name).describeCells(context);
    std::vector<float> host(static_cast<size_t>(planes.size()));
    detail::copyToHost(context, host.data(), planes.data(), planes.bytes());
    result.values.push_back(std::move(host));
  }
  result.state = tile.state();
  return result;
}

inline void expectSameValues(const CellTraining &a, const CellTraining &b) {
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) ASSERT_TRUE(sameBits(a.values[i], b.values[i])) << i;
}

}  // namespace pulsora::testing
