#include "tile/tile_config.h"

#include <algorithm>
#include <utility>

namespace pulsora {
namespace {

// Version 1 kept the parameters of an adapter in a separate table, "lrtt", and wrote the tables of
// all kinds whatever the kind was. Returns such a configuration in the present form.
Value::Map upgraded(Value::Map map, const std::string &kind) {
  const auto found = map.find("lrtt");
  if (found == map.end() || !found->second.map()) return map;
  const Value::Map own = *found->second.map();
  map.erase(found);
  if (kind == "lrtt") map.insert(own.begin(), own.end());
  if (kind != "single") map.erase("device");
  if (kind == "ideal") map.erase("update");
  return map;
}

// ConfigError for a name that is no parameter of the compound or of the periphery around it.
void requireKnown(const CompoundModel &model, const Value::Map &own, const std::string &path) {
  std::vector<std::string> known;
  for (const auto *rows : {&model.fields, &model.periphery})
    for (const FieldInfo &row : *rows) known.push_back(row.name);
  for (const auto &entry : own) {
    PULSORA_CHECK(ConfigError, std::find(known.begin(), known.end(), entry.first) != known.end(),
                  joinPath(path, entry.first), " is not a parameter of ", model.name,
                  suggest(entry.first, known));
  }
}

// Whether the update of a configuration sends no pulses.
bool sendsNoPulses(const Value::Map &config) {
  const auto update = config.find("update");
  if (update == config.end() || !update->second.map()) return false;
  const auto type = update->second.map()->find("pulse_type");
  if (type == update->second.map()->end() || !type->second.text()) return false;
  const auto is = [&](PulseType each) { return *type->second.text() == nameOf(each); };
  return is(PulseType::None) || is(PulseType::NoneWithDevice);
}

}  // namespace

Value savedConfig(const Value &config) {
  const Value::Map *map = config.map();
  if (!map) return config;
  Value::Map present = *map;
  const auto mode = map->find("transfer_mode");
  if (mode != map->end() && mode->second.text() && *mode->second.text() == "verified" &&
      sendsNoPulses(*map))
    present["transfer_mode"] = Value("auto");
  const auto kind = map->find("kind");
  for (const CompoundModel &model : compoundModels()) {
    if (kind != map->end() && kind->second.text() && *kind->second.text() == model.kind)
      present = model.fromSaved(std::move(present));
  }
  return Value(std::move(present));
}

template <>
TileConfig readParams<TileConfig>(const Value &value, const std::string &path) {
  const Value::Map *given = value.map();
  PULSORA_CHECK(ConfigError, given, path, " is ", value.describe(),
                "; write a table of named parameters");
  Value::Map own = *given;
  const std::string kindPath = joinPath(path, "kind");
  std::string kind = compoundModels().front().kind;
  if (const auto named = own.find("kind"); named != own.end()) {
    kind = detail::readText(named->second, kindPath);
    own.erase(named);
  }
  const CompoundModel &model = compoundModel(kind, kindPath);
  own = upgraded(std::move(own), kind);
  requireKnown(model, own, path);
  Value::Map around = *writeParams(model.defaults).map();
  for (const FieldInfo &row : model.periphery) {
    const auto found = own.find(row.name);
    if (found == own.end()) continue;
    around[row.name] = found->second;
    own.erase(found);
  }
  TileConfig config;
  static_cast<TilePeriphery &>(config) = readParams<TilePeriphery>(Value(std::move(around)), path);
  config.compound = CompoundParams(model, Value(std::move(own)), path);
  return config;
}

template <>
Value writeParams<TileConfig>(const TileConfig &config) {
  const CompoundModel &model = config.compound.model();
  Value value = config.compound.write();
  Value::Map &map = *value.map();
  map["kind"] = Value(model.kind);
  const Value around = writeParams<TilePeriphery>(config);
  for (const FieldInfo &row : model.periphery) map[row.name] = around.map()->at(row.name);
  return value;
}

template <>
void checkParams<TileConfig>(const TileConfig &config, const std::string &path) {
  checkParams<TilePeriphery>(config, path);
  const CompoundFacts facts = config.compound.facts();
  const bool calibrates = facts.digitalWeight && !facts.follows;
  PULSORA_CHECK(ConfigError,
                (calibrates || !config.forward.lacksRange()) && !config.backward.lacksRange(),
                joinPath(path, calibrates || config.backward.lacksRange() ? "backward" : "forward"),
                ".noise_management is 'input_range', and nm_thres, the range, is 0; set nm_thres");
  const auto &around = config.compound.model().periphery;
  const bool sendsPulses = std::any_of(around.begin(), around.end(),
                                       [](const FieldInfo &row) { return row.name == "update"; });
  for (const auto &[name, io] :
       {std::pair("forward", &config.forward), std::pair("backward", &config.backward)})
    PULSORA_CHECK(ConfigError, !io->solvesWires() || !sendsPulses, joinPath(path, name),
                  ".wires is 'solved', which reads of pulsed arrays do not offer; choose "
                  "'formula' with ir_drop, or an InferenceConfig");
}

}  // namespace pulsora
