#pragma once

#include <string>
#include <vector>

namespace pulsora {

/// A header of the library by its path within the rooms, such as "numerics/math.h".
struct EmbeddedHeader {
  const char *path;
  const char *text;
};

/// The headers that a device model compiled at run time may include, in the order of their paths:
/// those of the rooms up to array, and the plugin's own. They are part of the library, so that they
/// are always those it was built from.
const std::vector<EmbeddedHeader> &embeddedHeaders();

/// SHA-256 of them all.
const std::string &embeddedHeadersHash();

}  // namespace pulsora
