#pragma once

#include <string>
#include <string_view>

#include "storage/state.h"

// States as safetensors files, which the Python package reads and writes too (Tile.save,
// Tile.load). Such a file is: the length of the header in 8 bytes, lowest first; the header, a JSON
// object of {name: {"dtype", "shape", "data_offsets": [begin, end]}} and "__metadata__" {name:
// text}; the tensors one after another, without gaps, numbers with their lowest byte first. The
// values of a state are JSON under kStateFormat in the metadata. Reading never executes anything.

namespace pulsora {

/// Name of a state's values in the metadata of a file.
constexpr const char *kStateFormat = "pulsora.tile";

/// Writes `state` to a file, as replaceFile() does: an existing file is replaced by a complete one
/// or left as it is. StateError for a tensor whose bytes do not match its shape, or a wrong
/// checksum; std::filesystem::filesystem_error if the file cannot be written.
void saveState(const std::string &path, const State &state);

/// The state in a file, its checksum verified. StateError, which names the file, unless it is a
/// complete state; std::filesystem::filesystem_error if it cannot be read.
State loadState(const std::string &path);

/// The bytes of the file that saveState() writes.
std::string writeState(const State &state);
/// The state whose file consists of `bytes`; StateError unless they form one.
State parseState(std::string_view bytes);

}  // namespace pulsora
