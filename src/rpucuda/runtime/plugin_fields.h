#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parameters/field.h"
#include "runtime/plugin_table.h"

namespace pulsora {

/// The parameters of a plugin's model by name. The plugin must stay loaded.
class PluginFields {
 public:
  explicit PluginFields(const PluginHead &head);

  const std::vector<FieldInfo> &infos() const { return infos_; }
  /// Parameters with these values, of the model's own type. ConfigError, with the `path` of the
  /// configuration, for unknown names and bad values.
  std::shared_ptr<void> read(const Value &value, const std::string &path) const;
  Value write(const void *params) const;

 private:
  /// A row of the plugin's table of fields, with its texts.
  struct Row {
    std::string name;
    PluginType type;
    uint32_t offset;
    Range range;
    std::vector<std::string> choices;
  };

  template <class T>
  static T &at(char *own, const Row &row);
  template <class Work>
  static void withMember(char *own, const Row &row, const Work &work);
  static void readRow(char *own, const Row &row, const Value &value, const std::string &path);
  static Value writeRow(char *own, const Row &row);
  std::shared_ptr<void> newParams() const;
  void check(const void *params, const std::string &path) const;

  const PluginHead *head_;
  std::vector<Row> rows_;
  std::vector<FieldInfo> infos_;
};

}  // namespace pulsora
