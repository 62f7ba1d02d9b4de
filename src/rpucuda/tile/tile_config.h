#pragma once

#include "compounds/compound_model.h"
#include "compounds/tile_periphery.h"

namespace pulsora {

/// Everything that defines a tile, except its sizes and seed: its compound and its periphery.
///
///     TileConfig config;
///     LRTTParams adapter;
///     adapter.rank = 16;
///     config.compound = adapter;
///     config.forward.out_noise = 0.0f;
///
/// A Value holds it as one table: "kind", the compound's own parameters, and "forward", "backward"
/// and "update".
struct TileConfig : TilePeriphery {
  static constexpr const char *kName = "TileConfig";

  CompoundParams compound;
};

/// Reads a configuration: parameters that are missing take the compound's defaults, unknown names
/// are refused. Also reads the form in states of version 1, in which every kind of tile held the
/// tables of all kinds.
template <>
TileConfig readParams<TileConfig>(const Value &value, const std::string &path);
template <>
Value writeParams<TileConfig>(const TileConfig &config);
/// The configuration of a saved state as readParams() takes it. Before "auto", which has the same
/// bits, adapters were "verified" also where no pulses are sent. Settings without an effect, which
/// chains of arrays took earlier, get their defaults.
Value savedConfig(const Value &config);
/// ConfigError for periphery parameters out of their ranges; a compound is always valid.
template <>
void checkParams<TileConfig>(const TileConfig &config, const std::string &path);

}  // namespace pulsora
