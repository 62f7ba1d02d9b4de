#pragma once

#include <initializer_list>
#include <string>

#include "parameters/field_impl.h"

// Settings that have no effect beside the others of a configuration.

namespace pulsora {

/// A function (member, name, why) that refuses another value than the default.
template <class Params>
auto refuseUnused(const ParamsCheck &c, const Params &given) {
  return [&c, &given, defaults = Params{}](auto member, const char *name, const char *why) {
    const Value value = writeField(given.*member, ""), usual = writeField(defaults.*member, "");
    const bool isShort = !usual.map() && !usual.list();
    c.require(value == usual, c.path(name), " is ", value.describe(), ", but ", why,
              "; leave it at ", isShort ? usual.describe() : "its default");
  };
}

/// Parameters of which these settings, on which the use of others depends, are those of a saved
/// table, and the others have their defaults.
template <class Params>
Params decidingSettings(const Value::Map &saved, std::initializer_list<const char *> names) {
  Value::Map chosen;
  for (const char *name : names) {
    if (const auto found = saved.find(name); found != saved.end()) chosen.insert(*found);
  }
  Params params;
  const std::string path;
  detail::FieldReader<Params> reader{params, chosen, path, {}};
  Params::fields(reader);
  return params;
}

}  // namespace pulsora
