#include "array/device_sources.h"

#include <string>

#include "array/device_model.h"
#include "core/check.h"
#include "noise_models/noise_model_params.h"
#include "storage/sha256.h"

namespace pulsora {
namespace {

constexpr const char *kHash = "sha256";
constexpr const char *kSource = "source";

/// The models of one kind, and what messages call them.
template <class Model>
struct Kind {
  const char *what;
  const char *registers;
  const Model &(*find)(const std::string &name);

  /// The model of that name, or null.
  const Model *named(const std::string &name) const {
    try {
      return &find(name);
    } catch (const ConfigError &) {
      return nullptr;
    }
  }
};

constexpr Kind<DeviceModel> kDevices = {
    "device model", "pulsora.devices.from_source",
    [](const std::string &name) -> const DeviceModel & { return deviceModel(name, ""); }};
constexpr Kind<NoiseModel> kNoiseModels = {
    "noise model", "pulsora.noise_models.from_source",
    [](const std::string &name) -> const NoiseModel & { return noiseModel(name, ""); }};

template <class Model>
void collect(const Kind<Model> &kind, const Value &value, Value::Map &sources) {
  if (const Value::List *list = value.list()) {
    for (const Value &entry : *list) collect(kind, entry, sources);
  }
  const Value::Map *map = value.map();
  if (!map) return;
  for (const auto &[key, entry] : *map) {
    if (key == "model" && entry.text()) {
      const Model *model = kind.named(*entry.text());
      if (model && !model->source.empty())
        sources[model->name] = Value::Map{{kHash, model->sourceHash}, {kSource, model->source}};
    }
    collect(kind, entry, sources);
  }
}

const std::string *textOf(const Value &entry, const char *key) {
  const Value::Map *map = entry.map();
  if (!map) return nullptr;
  const auto found = map->find(key);
  return found == map->end() ? nullptr : found->second.text();
}

template <class Model>
void require(const Kind<Model> &kind, const Value &sources) {
  const Value::Map *map = sources.map();
  PULSORA_CHECK(StateError, map, "the state's sources of ", kind.what, "s are ", sources.describe(),
                ", which is no table; the state is damaged");
  for (const auto &[name, entry] : *map) {
    const std::string *hash = textOf(entry, kHash);
    const std::string *text = textOf(entry, kSource);
    PULSORA_CHECK(StateError, hash && text, "the state's source of the ", kind.what, " '", name,
                  "' lacks its text or its SHA-256; the state is damaged");
    PULSORA_CHECK(StateError, sha256(*text) == *hash, "the state's source of the ", kind.what, " '",
                  name, "' does not have the SHA-256 that stands beside it; the state is damaged");
    const Model *model = kind.named(name);
    if (model && model->sourceHash == *hash) continue;
    const std::string reason = !model ? "no model of that name is registered"
                               : model->sourceHash.empty()
                                   ? "the model of that name is built in"
                                   : "the model of that name has SHA-256 " + model->sourceHash;
    throw StateError(message(
        "the state was made with the ", kind.what, " '", name, "' from the source with SHA-256 ",
        *hash, ", but ", reason, "; loading compiles nothing. Register that source yourself (",
        kind.registers,
        "; the state holds its text for reading), or, if you trust "
        "who made the file as far as to run its code, load it with trust_device_source=True"));
  }
}

}  // namespace

Value::Map deviceSourcesOf(const Value &config) {
  Value::Map sources;
  collect(kDevices, config, sources);
  return sources;
}

Value::Map noiseSourcesOf(const Value &config) {
  Value::Map sources;
  collect(kNoiseModels, config, sources);
  return sources;
}

void requireDeviceSources(const Value &sources) { require(kDevices, sources); }

void requireNoiseSources(const Value &sources) { require(kNoiseModels, sources); }

}  // namespace pulsora
