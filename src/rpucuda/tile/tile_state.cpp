#include "tile/tile_impl.h"

namespace RPU {
namespace {

// Version 2 saves the settings of the tile's compound alone; version 1 saved those of every kind.
// Nothing else differs.
constexpr uint64_t kVersion = 2;
constexpr uint64_t kOldestVersion = 1;

struct NamedCounter {
  const char *name;
  uint64_t Counters::*member;
};
constexpr NamedCounter kCounters[] = {{"forward_samples", &Counters::forwardSamples},
                                      {"backward_samples", &Counters::backwardSamples},
                                      {"update_samples", &Counters::updateSamples},
                                      {"mini_batches", &Counters::miniBatches},
                                      {"events", &Counters::events}};

void requireSameTile(const State &state, const State &mine) {
  for (const char *name : {"config", "d_size", "x_size", "tile_id", "seed"}) {
    const auto found = state.values.find(name);
    bool same = found != state.values.end();
    if (same && std::string(name) == "config") {
      // Compared in the form of today, with missing parameters at their defaults.
      same = writeParams(readParams<TileConfig>(found->second, name)) == mine.values.at(name);
    } else if (same) {
      same = found->second == mine.values.at(name);
    }
    RPU_CHECK(StateError, same, "the state has another '", name,
              "' than this tile; load it into a tile of the same sizes, configuration and seed");
  }
}

// StateError unless `state` has every tensor and number of `mine`, and no other tensor.
void requireComplete(const State &state, const State &mine) {
  for (const auto &entry : mine.tensors)
    state.get(entry.first, entry.second.type, entry.second.shape);
  for (const auto &entry : state.tensors) {
    RPU_CHECK(StateError, mine.tensors.count(entry.first), "the state has a tensor '", entry.first,
              "' that this tile does not know; it belongs to another configuration");
    RPU_CHECK(StateError, entry.second.bytes.size() == mine.tensors.at(entry.first).bytes.size(),
              "tensor '", entry.first, "' of the state is truncated");
  }
  for (const auto &entry : mine.values) {
    const auto found = state.values.find(entry.first);
    RPU_CHECK(StateError, found != state.values.end(), "the state lacks '", entry.first,
              "'; it is incomplete");
    if (entry.second.integer()) state.counter(entry.first);
    RPU_CHECK(StateError, !entry.second.real() || found->second.real() || found->second.integer(),
              "the state's '", entry.first, "' is ", found->second.describe(),
              "; it must be a number: the state is damaged");
  }
}

}  // namespace

State Tile::state() const {
  impl_->reportFault();
  const Impl &t = *impl_;
  State state;
  t.device->saveTo(t.context, state, "");
  state.values["version"] = Value(kVersion);
  state.values["config"] = writeParams(t.config);
  state.values["d_size"] = Value(dSize());
  state.values["x_size"] = Value(xSize());
  // As text, because 64 bits do not fit every reader's integers.
  state.values["seed"] = Value(std::to_string(t.keys.seed));
  state.values["tile_id"] = Value(static_cast<int64_t>(t.keys.tileId));
  for (const NamedCounter &each : kCounters)
    state.values[each.name] = Value(t.counters.*each.member);
  return state;
}

void Tile::loadState(const State &state) {
  Impl &t = *impl_;
  t.clearFault();
  const State mine = this->state();
  const uint64_t version = state.counter("version");
  RPU_CHECK(StateError, version >= kOldestVersion && version <= kVersion, "the state has version ",
            version, "; this build reads versions ", kOldestVersion, " to ", kVersion);
  try {
    requireSameTile(state, mine);
  } catch (const ConfigError &error) {
    throw StateError(message("the state holds a bad setting: ", error.what()));
  }
  requireComplete(state, mine);
  Counters counters;
  for (const NamedCounter &each : kCounters) counters.*each.member = state.counter(each.name);
  try {
    t.device->loadFrom(t.context, state, "");
  } catch (...) {
    t.device->loadFrom(t.context, mine, "");
    throw;
  }
  t.counters = counters;
}

}  // namespace RPU
