#include "array/device_sources.h"

#include <string>

#include "array/device_model.h"
#include "core/check.h"
#include "storage/sha256.h"

namespace pulsora {
namespace {

constexpr const char *kHash = "sha256";
constexpr const char *kSource = "source";

const DeviceModel *modelNamed(const std::string &name) {
  try {
    return &deviceModel(name, "");
  } catch (const ConfigError &) {
    return nullptr;
  }
}

void collect(const Value &value, Value::Map &sources) {
  if (const Value::List *list = value.list()) {
    for (const Value &entry : *list) collect(entry, sources);
  }
  const Value::Map *map = value.map();
  if (!map) return;
  for (const auto &[key, entry] : *map) {
    if (key == "model" && entry.text()) {
      const DeviceModel *model = modelNamed(*entry.text());
      if (model && !model->source.empty())
        sources[model->name] = Value::Map{{kHash, model->sourceHash}, {kSource, model->source}};
    }
    collect(entry, sources);
  }
}

const std::string *textOf(const Value &entry, const char *key) {
  const Value::Map *map = entry.map();
  if (!map) return nullptr;
  const auto found = map->find(key);
  return found == map->end() ? nullptr : found->second.text();
}

}  // namespace

Value::Map deviceSourcesOf(const Value &config) {
  Value::Map sources;
  collect(config, sources);
  return sources;
}

void requireDeviceSources(const Value &sources) {
  const Value::Map *map = sources.map();
  PULSORA_CHECK(StateError, map, "the state's sources of device models are ", sources.describe(),
                ", which is no table; the state is damaged");
  for (const auto &[name, entry] : *map) {
    const std::string *hash = textOf(entry, kHash);
    const std::string *text = textOf(entry, kSource);
    PULSORA_CHECK(StateError, hash && text, "the state's source of the device model '", name,
                  "' lacks its text or its SHA-256; the state is damaged");
    PULSORA_CHECK(StateError, sha256(*text) == *hash, "the state's source of the device model '",
                  name, "' does not have the SHA-256 that stands beside it; the state is damaged");
    const DeviceModel *model = modelNamed(name);
    if (model && model->sourceHash == *hash) continue;
    const std::string reason = !model ? "no model of that name is registered"
                               : model->sourceHash.empty()
                                   ? "the model of that name is built in"
                                   : "the model of that name has SHA-256 " + model->sourceHash;
    throw StateError(message(
        "the state was made with the device model '", name, "' from the source with SHA-256 ",
        *hash, ", but ", reason,
        "; loading compiles nothing. Register that source yourself "
        "(pulsora.devices.from_source; the state holds its text for reading), or, if you trust "
        "who made the file as far as to run its code, load it with trust_device_source=True"));
  }
}

}  // namespace pulsora
