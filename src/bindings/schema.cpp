#include "schema.h"

#include <pybind11/stl.h>
#include <string>
#include <vector>

#include "noise_models/noise_model_params.h"
#include "tile/tile_config.h"
#include "value.h"

namespace pulsora::bindings {
namespace {

/// A parameter struct behind a type-erased interface.
struct ParameterStruct {
  const char *name;
  std::vector<FieldInfo> fields;
  Value (*normalise)(const Value &values, const std::string &path);
};

template <class Params>
ParameterStruct parameterStruct() {
  return {Params::kName, describeParams<Params>(),
          [](const Value &values, const std::string &path) {
            return writeParams(readParams<Params>(values, path));
          }};
}

// A configuration's fields depend on its compound, so they are listed with the compounds.
ParameterStruct tileConfig() {
  return {TileConfig::kName, {}, [](const Value &values, const std::string &path) {
            return writeParams(readParams<TileConfig>(values, path));
          }};
}

const std::vector<ParameterStruct> &parameterStructs() {
  static const std::vector<ParameterStruct> kStructs = {
      parameterStruct<UpdateParameters>(), parameterStruct<IOParameters>(), tileConfig()};
  return kStructs;
}

py::list describeFields(const std::vector<FieldInfo> &fields) {
  py::list rows;
  for (const FieldInfo &field : fields) {
    py::dict row;
    row["name"] = field.name;
    row["type"] = field.type;
    row["unit"] = field.unit;
    row["doc"] = field.doc;
    row["range"] = field.range;
    row["choices"] = py::cast(field.choices);
    row["struct"] = field.structName;
    row["default"] = fromValue(field.defaultValue);
    rows.append(row);
  }
  return rows;
}

py::dict schema() {
  py::dict devices, noiseModels, compounds, structs;
  for (const NoiseModel &model : pulsora::noiseModels())
    noiseModels[py::str(model.name)] = describeNoiseModel(model);
  for (const DeviceModel &model : deviceModels())
    devices[py::str(model.name)] = describeDevice(model);
  for (const CompoundModel &model : compoundModels()) {
    py::dict entry;
    entry["name"] = model.name;
    entry["doc"] = model.doc;
    entry["fields"] = describeFields(model.fields);
    entry["periphery"] = describeFields(model.periphery);
    py::dict variants;
    for (const CompoundVariant &variant : model.variants)
      variants[py::str(variant.name)] = fromValue(Value(variant.settings));
    entry["variants"] = variants;
    compounds[py::str(model.kind)] = entry;
  }
  for (const ParameterStruct &entry : parameterStructs()) {
    if (!entry.fields.empty()) structs[entry.name] = describeFields(entry.fields);
  }
  py::dict result;
  result["devices"] = devices;
  result["noise_models"] = noiseModels;
  result["compounds"] = compounds;
  result["structs"] = structs;
  return result;
}

py::dict compoundFacts(py::handle values) {
  const CompoundFacts facts = readParams<TileConfig>(toValue(values, ""), "").compound.facts();
  py::dict result;
  result["written"] = facts.written;
  result["pulses_written"] = facts.pulsesWritten;
  result["reuses_reads"] = facts.reusesReads;
  result["waits_for_host"] = facts.waitsForHost;
  result["spans_layer"] = facts.spansLayer;
  result["digital_weight"] = facts.digitalWeight;
  result["follows"] = facts.follows;
  return result;
}

py::object usedSettings(py::handle config) {
  const Value given = toValue(config, "");
  const auto kind = given.map() ? given.map()->find("kind") : Value::Map::const_iterator{};
  if (!given.map() || kind == given.map()->end() || !kind->second.text()) return fromValue(given);
  const std::string path = "kind";
  const CompoundModel &model = compoundModel(*kind->second.text(), path);
  return fromValue(Value(model.fromSaved(*given.map())));
}

py::object validate(const std::string &name, py::handle values, const std::string &path) {
  const Value given = toValue(values, path);
  for (const ParameterStruct &entry : parameterStructs()) {
    if (name == entry.name) return fromValue(entry.normalise(given, path));
  }
  for (const NoiseModel &model : noiseModels()) {
    if (name == model.name) return fromValue(model.writeParams(*model.readParams(given, path)));
  }
  const DeviceModel &model = deviceModel(name, path);
  return fromValue(model.writeParams(*model.readParams(given, path)));
}

}  // namespace

py::dict describeDevice(const DeviceModel &model) {
  py::dict entry;
  entry["doc"] = model.doc;
  entry["fields"] = describeFields(model.fields);
  entry["cell"] = py::cast(model.cellMembers);
  return entry;
}

py::dict describeNoiseModel(const NoiseModel &model) {
  py::dict entry;
  entry["doc"] = model.doc;
  entry["fields"] = describeFields(model.fields);
  return entry;
}

void bindSchema(py::module_ &module) {
  module.def("schema", &schema,
             "The table of all parameters: {'devices': {model: {'doc', 'fields', 'cell'}}, "
             "'noise_models': {model: {'doc', 'fields'}}, 'compounds': {kind: {'name', 'doc', "
             "'fields', 'periphery', 'variants'}}, 'structs': {name: fields}}. Variants are "
             "settings that tests try beside the defaults, by name. "
             "A field is a dict of name, type, unit, doc, range, choices, struct and default.");
  module.def("validate", &validate, py::arg("name"), py::arg("values"), py::arg("path"),
             "The parameters of the struct, device model or noise model `name`, complete and as "
             "the core stores "
             "them. `path` "
             "stands in front of names in messages. ConfigError for unknown names and bad values.");
  module.def("used_settings", &usedSettings, py::arg("config"),
             "The dict of a TileConfig, without settings that have no effect beside the others.");
  module.def(
      "compound_facts", &compoundFacts, py::arg("config"),
      "Properties of a tile's compound that layers depend on: {'written': parameter of the "
      "device whose cells take written weights, '' without cells; 'pulses_written': whether "
      "every update pulses them; 'reuses_reads': whether an update needs the backward read "
      "of its mini-batch; 'waits_for_host': whether an update may wait for the GPU; "
      "'spans_layer': whether one device serves a whole layer; 'digital_weight': whether "
      "layers hold the weight as a parameter of torch; 'follows': whether cells follow it by "
      "pulses}. `config` is the dict of a "
      "TileConfig; ConfigError as in validate().");
  module.def(
      "last_time",
      [](py::handle values) {
        return NoiseModelParams::read(toValue(values, "noise_model"), "noise_model").lastTime();
      },
      py::arg("noise_model"),
      "The largest time in s since programming for which a noise model, given as a dict, has "
      "numbers; infinity if there is none.");
  module.def("suggest", &suggest, py::arg("wanted"), py::arg("names"),
             "The end of a message about an unknown name: the name that was probably meant, and "
             "all known ones.");
}

}  // namespace pulsora::bindings
