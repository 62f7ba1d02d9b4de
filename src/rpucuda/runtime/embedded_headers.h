#pragma once

#include <string>
#include <vector>

namespace pulsora {

/// A header of the library by its path within the rooms, such as "numerics/math.h", or a public
/// header by the path that users write, such as "pulsora/math.h".
struct EmbeddedHeader {
  const char *path;
  const char *text;
};

/// The headers that a device model compiled at run time may include, in the order of their paths:
/// headers of the rooms up to array, of plugins, and the public headers that need no others. The
/// texts are embedded in the library, so that they are always the ones it was built from.
const std::vector<EmbeddedHeader> &embeddedHeaders();

/// SHA-256 of all embedded headers.
const std::string &embeddedHeadersHash();

}  // namespace pulsora
