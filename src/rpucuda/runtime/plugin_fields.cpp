#include "runtime/plugin_fields.h"

#include <new>
#include <sstream>
#include <utility>

#include "core/check.h"

namespace pulsora {
namespace {

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

/// A message under construction, from parts that the plugin passes.
struct Complaint {
  std::string path;
  std::ostringstream text;

  static Complaint &of(void *context) { return *static_cast<Complaint *>(context); }
};

}  // namespace

template <class T>
T &PluginFields::at(char *own, const Row &row) {
  return *reinterpret_cast<T *>(own + row.offset);
}

/// Calls work(member) with the row's member of a model's own parameters, except for enums.
template <class Work>
void PluginFields::withMember(char *own, const Row &row, const Work &work) {
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

void PluginFields::readRow(char *own, const Row &row, const Value &value, const std::string &path) {
  if (row.type == PluginType::Enum) {
    at<int32_t>(own, row) = static_cast<int32_t>(detail::readChoice(value, row.choices, path));
    return;
  }
  withMember(own, row, [&](auto &member) { readField(member, value, row.range, path, ""); });
}

Value PluginFields::writeRow(char *own, const Row &row) {
  if (row.type == PluginType::Enum)
    return Value(row.choices.at(static_cast<size_t>(at<int32_t>(own, row))));
  Value value;
  withMember(own, row, [&](const auto &member) { value = writeField(member, ""); });
  return value;
}

// Parameters with their defaults.
std::shared_ptr<void> PluginFields::newParams() const {
  const std::align_val_t alignment{head_->paramsAlignment};
  void *memory = ::operator new(head_->paramsSize, alignment);
  head_->defaults(memory);
  // They are trivial to destroy, because they are trivially copyable.
  return {memory, [alignment](void *params) { ::operator delete(params, alignment); }};
}

void PluginFields::check(const void *params, const std::string &path) const {
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
  if (head_->check(params, &parts) == 0) throw ConfigError(complaint.text.str());
}

PluginFields::PluginFields(const PluginHead &head) : head_(&head) {
  head.fields(this, [](void *context, const PluginField *field) {
    auto &fields = *static_cast<PluginFields *>(context);
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
    fields.infos_.push_back(std::move(info));
    fields.rows_.push_back(std::move(row));
  });
  const std::shared_ptr<void> defaults = newParams();
  for (size_t i = 0; i < rows_.size(); ++i)
    infos_[i].defaultValue = writeRow(static_cast<char *>(defaults.get()), rows_[i]);
}

std::shared_ptr<void> PluginFields::read(const Value &value, const std::string &path) const {
  const Value::Map *map = value.map();
  PULSORA_CHECK(ConfigError, map, path, " is ", value.describe(),
                "; write a table of named parameters");
  std::shared_ptr<void> params = newParams();
  std::vector<std::string> known;
  for (const Row &row : rows_) {
    known.push_back(row.name);
    const auto found = map->find(row.name);
    if (found == map->end()) continue;
    readRow(static_cast<char *>(params.get()), row, found->second, joinPath(path, row.name));
  }
  for (const auto &entry : *map) {
    bool found = false;
    for (const std::string &name : known) found = found || name == entry.first;
    PULSORA_CHECK(ConfigError, found, joinPath(path, entry.first), " is not a parameter of ",
                  head_->name, suggest(entry.first, known));
  }
  check(params.get(), path);
  return params;
}

Value PluginFields::write(const void *params) const {
  // Only reads; the cast allows the same code as for writing.
  char *own = static_cast<char *>(const_cast<void *>(params));
  Value::Map map;
  for (const Row &row : rows_) map[row.name] = writeRow(own, row);
  return Value(std::move(map));
}

}  // namespace pulsora
