#pragma once

// Tiles of every registered compound, and shared test code.

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tile/tile.h"
#include "util/pulse_test_util.h"

namespace pulsora::testing {

constexpr int64_t kRows = 7;
constexpr int64_t kCols = 9;

/// The kind of a compound or variant, with the settings of the variant.
inline Value::Map kindOf(const std::string &name) {
  for (const CompoundModel &model : compoundModels()) {
    for (const CompoundVariant &variant : model.variants) {
      if (variant.name != name) continue;
      Value::Map map = variant.settings;
      map["kind"] = Value(model.kind);
      return map;
    }
  }
  return {{"kind", Value(name)}};
}

/// A configuration of a registered compound, or a variant of one, with everything that cells can do
/// and noise on every read.
inline TileConfig configOf(const std::string &name, Value::Map extra = {}) {
  Value::Map map = std::move(extra);
  map.merge(kindOf(name));
  const std::string kind = *map.at("kind").text();
  const Value device(Value::Map{{"model", "SoftBounds"},
                                {"dw_min", 0.005},
                                {"lifetime", 50.0},
                                {"lifetime_dtod", 0.2},
                                {"diffusion", 0.002},
                                {"diffusion_dtod", 0.3},
                                {"reset_dtod", 0.01},
                                {"write_noise_std", 0.5}});
  for (const FieldInfo &field : compoundModel(kind, "kind").fields) {
    if (field.type == "device" && kind != "inference") map.try_emplace(field.name, device);
    if (field.type == "devices") map.try_emplace(field.name, Value::List{device, device});
    if (field.name == "rank") map.try_emplace(field.name, Value(2));
    if (field.name == "transfer_every") map.try_emplace(field.name, Value(7));
    if (field.name == "refresh_every") map.try_emplace(field.name, Value(2));
  }
  map.try_emplace("forward", Value(Value::Map{}));
  map.try_emplace("backward", Value(Value::Map{}));
  return readParams<TileConfig>(savedConfig(Value(std::move(map))), "");  // without unused devices
}

/// All kinds and their variants.
inline std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const CompoundModel &model : compoundModels()) {
    names.push_back(model.kind);
    for (const CompoundVariant &variant : model.variants) names.push_back(variant.name);
  }
  return names;
}

using Numbers = std::vector<float>;

/// A few mini-batches of everything a tile does; returns all outputs. Each mini-batch comes in
/// parts of `part` samples.
inline Numbers run(Tile &tile, uint64_t from, uint64_t steps, int64_t part = 6) {
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
      tile.update(b.xRows(s, end), b.dRows(s, end), 0.1f, BatchEnd::Later);
    }
    tile.endBatch(0.1f);
    out.insert(out.end(), y.begin(), y.end());
    out.insert(out.end(), dx.begin(), dx.end());
  }
  Numbers w(kRows * kCols);
  tile.getWeights(rowMajor(w.data(), kRows, kCols));
  out.insert(out.end(), w.begin(), w.end());
  return out;
}

inline Tile makeTile(const std::string &kind, const Context &context = onCpu(1), uint64_t seed = 11,
                     uint32_t id = 3) {
  return Tile(kRows, kCols, configOf(kind), seed, id, context);
}
inline Numbers fresh(const std::string &kind, const Context &context, int64_t part = 6) {
  Tile tile = makeTile(kind, context);
  return run(tile, 0, 8, part);
}

class TileOfKind : public ::testing::TestWithParam<std::string> {};

}  // namespace pulsora::testing
