#include <charconv>

#include "array/device_sources.h"
#include "linalg/math_util.h"
#include "lrtt/adapter.h"
#include "tile/tile_impl.h"

namespace pulsora {
namespace {

// Since version 4 weight_bits = "auto" means integers, where reads can have them, and since version
// 5 those of programmed arrays, too; before, it meant floating point. Version 3 is signed
// (State::sign). Version 2 saved the settings of the tile's compound alone, like version 3; version
// 1 saved the settings of every kind. Neither counted the sendings of transfers.
constexpr uint64_t kVersion = 5;
constexpr uint64_t kIntegersSince = 4;
constexpr uint64_t kProgrammedIntegersSince = 5;
constexpr uint64_t kSendingsSince = 3;
constexpr uint64_t kOldestVersion = 1;

// The values that hold the sources of models (array/device_sources.h), if there are any.
constexpr const char *kSources = "device_sources";
constexpr const char *kNoiseSources = "noise_model_sources";

// The value of Tile::cellSeed(), where it is not the tile's seed.
constexpr const char *kCellSeed = "cell_seed";

// The settings without those that change no bit: where devices have the parameters of cells.
Value withoutStorage(Value settings) {
  if (Value::List *list = settings.list()) {
    for (Value &each : *list) each = withoutStorage(std::move(each));
  } else if (Value::Map *map = settings.map()) {
    if (map->count("model") > 0) map->erase("cells");
    for (auto &[name, each] : *map) each = withoutStorage(std::move(each));
  }
  return settings;
}

const Value &valueOf(const State &state, const char *name) {
  const auto found = state.values.find(name);
  PULSORA_CHECK(StateError, found != state.values.end(), "the state has no '", name,
                "', so that it does not say what tile it belongs to");
  return found->second;
}

// A configuration whose reads are in floating point where it does not ask for integers by number.
Value inFloats(Value config) {
  Value::Map *map = config.map();
  if (!map) return config;
  for (const char *name : {"forward", "backward"}) {
    const auto found = map->find(name);
    Value::Map *read = found == map->end() ? nullptr : found->second.map();
    if (read && (read->count("weight_bits") == 0 || read->at("weight_bits").text()))
      (*read)["weight_bits"] = Value(32);
  }
  return config;
}

// Whether weight_bits = "auto" meant floating point in the version of a state.
bool isFromFloats(const State &state, const Value &config) {
  const Value::Map *map = config.map();
  const auto kind = map ? map->find("kind") : Value::Map::const_iterator{};
  const bool isProgrammed = map && kind != map->end() && kind->second == Value("inference");
  return state.counter("version") < (isProgrammed ? kProgrammedIntegersSince : kIntegersSince);
}

// The configuration of a saved state, with products as its version made them.
Value configOf(const State &state) {
  Value config = savedConfig(valueOf(state, "config"));
  return isFromFloats(state, config) ? inFloats(std::move(config)) : config;
}

void requireSameTile(const State &state, const State &mine) {
  for (const char *name : {"config", "d_size", "x_size", "tile_id", "seed", kCellSeed}) {
    const auto found = state.values.find(name);
    const auto own = mine.values.find(name);
    if (found == state.values.end() && own == mine.values.end()) continue;
    bool same = found != state.values.end() && own != mine.values.end();
    if (same && std::string(name) == "config") {
      // Compared in the present form, with missing parameters at their defaults. The products of an
      // earlier version's reads go on as this tile makes them.
      const auto saved = readParams<TileConfig>(configOf(state), name);
      const bool isEarlier = isFromFloats(state, own->second);
      same = withoutStorage(writeParams(saved)) ==
             withoutStorage(isEarlier ? inFloats(own->second) : own->second);
    } else if (same) {
      same = found->second == own->second;
    }
    PULSORA_CHECK(
        StateError, same, "the state has another '", name,
        "' than this tile; load it into a tile of the same sizes, configuration and seed");
  }
}

bool hasEnd(const std::string &name, std::string_view end) {
  return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
}

// Whether a value or a tensor exists at some times only, or not in states of earlier versions.
bool comesAndGoes(const std::string &name) {
  const auto endsWith = [&](std::string_view end) { return hasEnd(name, end); };
  return endsWith(PulsedDevice::kBoundsDue) || endsWith(Programmable::kMeasured) ||
         endsWith(Programmable::kAdcGains) || endsWith(PulsedDevice::kSlots) ||
         endsWith(BlockRead::kRepeats) || endsWith(Programmable::kPastForward) ||
         endsWith(Programmable::kPastBackward) || endsWith(LRTTAdapter::kProjected);
}

// Whether a state has the cells that a tensor or a value is of as tensors, or the value in their
// place (array/cell_planes.h). A tile loads either form, and checks it then.
bool hasStored(const State &state, const std::string &name) {
  return CellPlanes::isOf(name) && state.tensors.count(CellPlanes::stored(name)) > 0;
}
bool hasComputed(const State &state, const std::string &name) {
  return CellPlanes::isOf(name) && state.values.count(CellPlanes::drawn(name)) > 0;
}

// StateError unless `state` has the tensors and values of `mine`, of the same types, and no others.
void requireComplete(const State &state, const State &mine) {
  for (const auto &entry : mine.tensors) {
    if (comesAndGoes(entry.first) || hasComputed(state, entry.first)) continue;
    state.get(entry.first, entry.second.type, entry.second.shape);
  }
  for (const auto &entry : state.tensors) {
    const bool inOtherForm = hasComputed(mine, entry.first) && !hasComputed(state, entry.first);
    if (comesAndGoes(entry.first) || inOtherForm) continue;
    PULSORA_CHECK(StateError, mine.tensors.count(entry.first), "the state has a tensor '",
                  entry.first,
                  "' that this tile does not know; it belongs to another configuration");
    PULSORA_CHECK(StateError, entry.second.bytes.size() == mine.tensors.at(entry.first).byteSize(),
                  "tensor '", entry.first, "' of the state is truncated");
  }
  for (const auto &entry : mine.values) {
    if (comesAndGoes(entry.first) || hasStored(state, entry.first)) continue;
    const auto found = state.values.find(entry.first);
    PULSORA_CHECK(StateError, found != state.values.end(), "the state lacks '", entry.first,
                  "'; it is incomplete");
    PULSORA_CHECK(StateError, found->second.isLike(entry.second), "the state's '", entry.first,
                  "' is ", found->second.describe(), ", which is of another kind than ",
                  entry.second.describe(), "; the state is damaged");
    if (entry.second.integer()) state.counter(entry.first);
  }
  for (const auto &entry : state.values) {
    if (comesAndGoes(entry.first)) {
      state.counter(entry.first);
      continue;
    }
    if (hasStored(mine, entry.first) && !hasStored(state, entry.first)) continue;
    PULSORA_CHECK(StateError, entry.first == State::kChecksum || mine.values.count(entry.first),
                  "the state has a value '", entry.first,
                  "' that this tile does not know; it is damaged or was made by another version");
  }
}

// Adds "sendings" to a state before version 3, in which every transfer was sent once.
State withSendings(State state) {
  const std::string transfers = "/transfers";
  Value::Map added;
  for (const auto &[name, value] : state.values) {
    if (name.size() > transfers.size() && hasEnd(name, transfers))
      added.emplace(name.substr(0, name.size() - transfers.size()) + "/sendings", value);
  }
  state.values.merge(added);
  return state;
}

// Called before anything that follows from the configuration: a missing model has its own message.
void requireSources(const State &state) {
  const auto devices = state.values.find(kSources);
  if (devices != state.values.end()) requireDeviceSources(devices->second);
  const auto noise = state.values.find(kNoiseSources);
  if (noise != state.values.end()) requireNoiseSources(noise->second);
}

uint64_t seedOf(const State &state, const char *name) {
  const Value &seed = valueOf(state, name);
  const std::string text = seed.text() ? *seed.text() : "";
  uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  PULSORA_CHECK(StateError,
                !text.empty() && read.ec == std::errc{} && read.ptr == text.data() + text.size(),
                "the state's ", name, " is ", seed.describe(), "; it must be a number, as text");
  return number;
}

// Every cell has a weight among the tensors, so wrong sizes are found before memory is taken.
void requireEnoughWeights(const State &state, int64_t dSize, int64_t xSize) {
  int64_t weights = 0;
  for (const auto &[name, tensor] : state.tensors) {
    if (hasEnd(name, "weights"))
      weights += static_cast<int64_t>(tensor.bytes.size() / typeOf(tensor.type).bytes);
  }
  PULSORA_CHECK(StateError, dSize >= 1 && xSize >= 1 && dSize <= weights / xSize,
                "the state holds ", weights, " weights, which is too few for a tile of size [",
                dSize, ", ", xSize, "]; it is damaged");
}

}  // namespace

// The present state, unsigned, or what it has for names, types and shapes.
State Tile::collect(bool shapesOnly) const {
  const Impl &t = *impl_;
  t.requireWeights();
  State state;
  state.shapesOnly = shapesOnly;
  t.saveTo(state);
  state.values["version"] = Value(kVersion);
  state.values["config"] = writeParams(t.config);
  Value::Map sources = deviceSourcesOf(state.values["config"]);
  if (!sources.empty()) state.values[kSources] = Value(std::move(sources));
  Value::Map noise = noiseSourcesOf(state.values["config"]);
  if (!noise.empty()) state.values[kNoiseSources] = Value(std::move(noise));
  state.values["d_size"] = Value(dSize());
  state.values["x_size"] = Value(xSize());
  // As text, because 64 bits do not fit every reader's integers.
  state.values["seed"] = Value(std::to_string(t.keys.seed));
  if (t.keys.cellSeed != t.keys.seed)
    state.values[kCellSeed] = Value(std::to_string(t.keys.cellSeed));
  state.values["tile_id"] = Value(static_cast<int64_t>(t.keys.tileId));
  for (const NamedCounter &each : kCounters)
    state.values[each.name] = Value(t.counters.*each.member);
  return state;
}

State Tile::state() const {
  impl_->reportNonfinite();
  State state = collect(false);
  state.requireFinite();
  state.sign();
  return state;
}

void Tile::loadState(const State &state) {
  state.verify();
  take(state, collect(false));
}

// Restores a verified state. `mine` is what collect() returns before; of a tile that is not wanted
// without the state, shapes are enough.
void Tile::take(const State &state, const State &mine) {
  Impl &t = *impl_;
  const uint64_t version = state.counter("version");
  PULSORA_CHECK(StateError, version >= kOldestVersion && version <= kVersion,
                "the state has version ", version, "; this build reads versions ", kOldestVersion,
                " to ", kVersion);
  if (version < kSendingsSince && state.values.count("transfer/last/transfers") > 0 &&
      state.values.count("transfer/last/sendings") == 0) {
    take(withSendings(state), mine);
    return;
  }
  requireSources(state);
  try {
    requireSameTile(state, mine);
  } catch (const ConfigError &error) {
    throw StateError(message("the state holds a bad setting: ", error.what()));
  }
  requireComplete(state, mine);
  state.requireFinite();
  Counters counters;
  for (const NamedCounter &each : kCounters)
    counters.*each.member = state.counter(each.name, each.most);
  const auto load = [&](const State &from) {
    const auto operation = t.longOperation();
    t.loadFrom(from);
    t.device->boundReads(t.context);
  };
  try {
    load(state);
  } catch (...) {
    if (!mine.shapesOnly) load(mine);
    throw;
  }
  t.clearNonfinite();
  t.counters = counters;
}

Tile Tile::variant(const TileConfig &config, const TileKeys &keys) const {
  const Impl &t = *impl_;
  Tile made(dSize(), xSize(), config, keys, t.context);
  State fresh = made.collect(false);
  State state = collect(false);
  state.values.erase(kCellSeed);
  for (const char *name : {"config", "seed", kCellSeed}) {
    const auto found = fresh.values.find(name);
    if (found != fresh.values.end()) state.values[name] = found->second;
  }
  // What the new hardware brings along: cells, and where other reads follow a running mean, the
  // mean at its start.
  const bool newCells = keys.cellSeed != t.keys.cellSeed;
  for (auto &[name, tensor] : fresh.tensors) {
    const auto found = state.tensors.find(name);
    if (found != state.tensors.end() && !(newCells && PulsedDevice::isOfCells(name)))
      tensor = std::move(found->second);
  }
  for (auto &[name, tensor] : state.tensors)
    if (!newCells && CellPlanes::isOf(name)) fresh.tensors.emplace(name, std::move(tensor));
  for (const auto &[name, value] : fresh.values)
    if (newCells && CellPlanes::isOf(name)) state.values[name] = value;
  // Tensors that a tile has only once they were given.
  for (auto &[name, tensor] : state.tensors)
    if (hasEnd(name, Programmable::kAdcGains) ||
        (!newCells && hasEnd(name, Programmable::kMeasured)))
      fresh.tensors.emplace(name, std::move(tensor));
  state.tensors = std::move(fresh.tensors);
  made.take(state, made.collect(true));
  made.impl_->evaluation = t.evaluation;
  return made;
}

void Tile::reseed(uint64_t seed, bool cells) {
  impl_->reportNonfinite();
  const Context &context = impl_->context;
  std::vector<std::pair<std::string, Buffer<float>>> written;
  if (cells) {
    for (const std::string &name : arrayNames()) {
      const MatrixView<const float> seen = array(name).weights();
      written.emplace_back(name, Buffer<float>(context, seen.size()));
      copy(context, seen, rowMajor(written.back().second.data(), seen.rows, seen.cols));
    }
  }
  Tile made = variant(impl_->config, {seed, tileId(), cells ? seed : cellSeed()});
  for (const auto &[name, weights] : written) {
    const PulsedDevice &to = made.array(name);
    made.setArray(name, rowMajor<const float>(weights.data(), to.rows(), to.cols()));
  }
  *this = std::move(made);
}

Tile Tile::withPeriphery(const TilePeriphery &periphery) const {
  impl_->reportNonfinite();
  TileConfig config = impl_->config;
  static_cast<TilePeriphery &>(config) = periphery;
  return variant(config, impl_->keys);
}

uint64_t Tile::evaluationSample() const { return impl_->evaluation.next(impl_->readCounters()); }

uint64_t Tile::evaluated() const { return impl_->evaluation.at(impl_->readCounters()); }

void Tile::setEvaluated(uint64_t samples) {
  pulsora::requireRoom(samples, 0, kMostCounted, "samples of evaluations");
  impl_->evaluation = {EvaluationCount::trainedIn(impl_->readCounters()), samples};
}

Tile Tile::fromState(const State &state, const Context &context) {
  checkContext(context);
  state.verify();
  requireSources(state);
  const auto dSize = static_cast<int64_t>(state.counter("d_size"));
  const auto xSize = static_cast<int64_t>(state.counter("x_size"));
  requireEnoughWeights(state, dSize, xSize);
  TileKeys keys{seedOf(state, "seed"), static_cast<uint32_t>(state.counter("tile_id", UINT32_MAX))};
  if (state.values.count(kCellSeed) > 0) keys.cellSeed = seedOf(state, kCellSeed);
  try {
    const auto config = readParams<TileConfig>(configOf(state), "config");
    Tile tile(dSize, xSize, config, keys, context);
    tile.take(state, tile.collect(true));
    return tile;
  } catch (const ConfigError &error) {
    throw StateError(message("the state belongs to no tile that can be made: ", error.what()));
  }
}

}  // namespace pulsora
