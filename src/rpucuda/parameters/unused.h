#pragma once

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

}  // namespace pulsora
