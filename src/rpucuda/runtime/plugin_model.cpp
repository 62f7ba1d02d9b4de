#include "runtime/plugin_model.h"

#include <dlfcn.h>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <utility>
#include <vector>

#include "core/check.h"
#include "parameters/field.h"
#include "runtime/private_folder.h"

namespace pulsora {
namespace {

/// A row of the plugin's table of fields, with its texts.
struct Row {
  std::string name;
  PluginType type;
  uint32_t offset;
  Range range;
  std::vector<std::string> choices;
};

/// The plugin of a model, and its parameters by name.
struct Described {
  const PluginTable *table;
  std::string name;
  std::vector<Row> rows;
};

/// Parameters with their defaults.
std::shared_ptr<PulsedParams> newParams(const PluginTable &table) {
  const std::align_val_t alignment{table.paramsAlignment};
  void *memory = ::operator new(table.paramsSize, alignment);
  table.defaults(memory);
  // Params begin with PulsedParams, and are trivial to destroy: they are trivially copyable.
  return {static_cast<PulsedParams *>(memory),
          [alignment](PulsedParams *params) { ::operator delete(params, alignment); }};
}

/// The memory of the parameters; fields are at their offsets.
char *bytesOf(PulsedParams &params) { return reinterpret_cast<char *>(&params); }

template <class T>
T &at(char *own, const Row &row) {
  return *reinterpret_cast<T *>(own + row.offset);
}

/// Calls work(member) with the row's member of a model's own parameters, except for enums.
template <class Work>
void withMember(char *own, const Row &row, const Work &work) {
  switch (row.type) {
    case PluginType::Bool:
      return work(at<bool>(own, row));
    case PluginType::Int32:
      return work(at<int32_t>(own, row));
    case PluginType::Int64:
      return work(at<int64_t>(own, row));
    case PluginType::Float:
      return work(at<float>(own, row));
    case PluginType::Floats:
      return work(at<FloatList>(own, row));
    case PluginType::Enum:
      return;
  }
}

const char *typeName(PluginType type) {
  switch (type) {
    case PluginType::Bool:
      return "bool";
    case PluginType::Int32:
    case PluginType::Int64:
      return "int";
    case PluginType::Float:
      return "float";
    case PluginType::Floats:
      return "floats";
    case PluginType::Enum:
      return "enum";
  }
  return "";
}

void readRow(char *own, const Row &row, const Value &value, const std::string &path) {
  if (row.type == PluginType::Enum) {
    at<int32_t>(own, row) = static_cast<int32_t>(detail::readChoice(value, row.choices, path));
    return;
  }
  withMember(own, row, [&](auto &member) { readField(member, value, row.range, path, ""); });
}

Value writeRow(char *own, const Row &row) {
  if (row.type == PluginType::Enum)
    return Value(row.choices.at(static_cast<size_t>(at<int32_t>(own, row))));
  Value value;
  withMember(own, row, [&](const auto &member) { value = writeField(member, ""); });
  return value;
}

/// A message under construction, from parts that the plugin passes.
struct Complaint {
  std::string path;
  std::ostringstream text;

  static Complaint &of(void *context) { return *static_cast<Complaint *>(context); }
};

void check(const Described &model, const PulsedParams &params, const std::string &path) {
  Complaint complaint{path, {}};
  complaint.text.precision(9);  // like message()
  const PluginMessage parts{&complaint,
                            [](void *c, const char *text) { Complaint::of(c).text << text; },
                            // In single precision, as the parameters are.
                            [](void *c, double number) { Complaint::of(c).text << number; },
                            [](void *c, int64_t number) { Complaint::of(c).text << number; },
                            [](void *c, const char *name) {
                              Complaint::of(c).text << joinPath(Complaint::of(c).path, name);
                            }};
  if (model.table->check(&params, &parts) == 0) throw ConfigError(complaint.text.str());
}

std::shared_ptr<const PulsedParams> readPluginParams(const Described &model, const Value &value,
                                                     const std::string &path) {
  const Value::Map *map = value.map();
  PULSORA_CHECK(ConfigError, map, path, " is ", value.describe(),
                "; write a table of named parameters");
  std::shared_ptr<PulsedParams> params = newParams(*model.table);
  char *own = bytesOf(*params);
  std::vector<std::string> known;
  for (const Row &row : model.rows) {
    known.push_back(row.name);
    const auto found = map->find(row.name);
    if (found != map->end()) readRow(own, row, found->second, joinPath(path, row.name));
  }
  for (const auto &entry : *map) {
    bool found = false;
    for (const std::string &name : known) found = found || name == entry.first;
    PULSORA_CHECK(ConfigError, found, joinPath(path, entry.first), " is not a parameter of ",
                  model.name, suggest(entry.first, known));
  }
  check(model, *params, path);
  requireUsable(*params, model.table->granularity(params.get()), model.table->mergesNoise != 0,
                model.name, path);
  return params;
}

}  // namespace

const PluginTable &loadPlugin(const std::string &bytes, const std::string &name, Isa isa) {
  // From a private folder, which may be removed once the library is loaded.
  const PrivateFolder folder;
  const std::string path = (folder.path() / (name + ".so")).string();
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  PULSORA_CHECK(CompileError, out.good(), "the compiled device model '", name,
                "' cannot be written to ", path, "; name a folder with space by TMPDIR");
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char *problem = library ? nullptr : ::dlerror();
  PULSORA_CHECK(CompileError, library, "the compiled device model '", name, "' cannot be loaded (",
                problem ? problem : "no reason given",
                "); if programs in this folder may not be run, name another by TMPDIR");
  void *entry = ::dlsym(library, kPluginEntry);
  PULSORA_CHECK(CompileError, entry, "the compiled device model '", name, "' has no function ",
                kPluginEntry, "; it is not one");
  const PluginTable &table = *reinterpret_cast<const PluginTable *(*)()>(entry)();
  PULSORA_CHECK(CompileError,
                table.abi == kPluginAbi && table.isa == static_cast<uint32_t>(isa) &&
                    table.commonSize == sizeof(PulsedParams),
                "the compiled device model '", name, "' was made for another version of Pulsora");
  return table;
}

DeviceModel pluginModel(const PluginTable &table, const PluginLauncher &launcher) {
  auto model = std::make_shared<Described>();
  model->table = &table;
  DeviceModel m;
  m.name = model->name = table.name;
  m.doc = table.doc;
  struct Rows {
    std::vector<Row> &rows;
    std::vector<FieldInfo> &infos;
  } rows{model->rows, m.fields};
  table.fields(&rows, [](void *context, const PluginField *field) {
    Row row{field->name,
            field->type,
            field->offset,
            field->range,
            {field->choices, field->choices + field->choiceCount}};
    FieldInfo info;
    info.name = row.name;
    info.type = typeName(row.type);
    info.unit = field->unit;
    info.doc = field->doc;
    if (info.type == "int" || info.type == "float") info.range = describe(row.range);
    info.choices = row.choices;
    static_cast<Rows *>(context)->infos.push_back(std::move(info));
    static_cast<Rows *>(context)->rows.push_back(std::move(row));
  });
  const std::shared_ptr<PulsedParams> defaults = newParams(table);
  for (size_t i = 0; i < model->rows.size(); ++i)
    m.fields[i].defaultValue = writeRow(bytesOf(*defaults), model->rows[i]);
  table.members(&m.cellMembers, [](void *context, const char *name) {
    static_cast<std::vector<std::string> *>(context)->emplace_back(name);
  });
  m.readParams = [model](const Value &value, const std::string &path) {
    return readPluginParams(*model, value, path);
  };
  m.writeParams = [model](const PulsedParams &params) {
    // Only reads; the cast allows the same code as for writing.
    char *own = bytesOf(const_cast<PulsedParams &>(params));
    Value::Map map;
    for (const Row &row : model->rows) map[row.name] = writeRow(own, row);
    return Value(std::move(map));
  };
  m.granularity = [&table](const PulsedParams &params) { return table.granularity(&params); };
  // Only the machine's best instruction set is compiled; all give the same bits.
  m.cpu = [&table](Isa) -> const PulsedKernels & { return *table.kernels; };
  table.setLauncher(&launcher);
  m.cuda = [&table] { return table.gpuKernels; };
  return m;
}

}  // namespace pulsora
