#pragma once

#include <cstddef>

// Storage that a StorageSource (core/storage_source.h) has lent.

namespace pulsora {

/// Storage from the present source; null if there is no source that can be used. OutOfMemoryError
/// if none is left.
void *borrowStorage(int device, void *stream, size_t bytes);
/// Gives storage back once all work now on `stream` has run; false if it was not borrowed.
bool giveStorageBack(void *stream, void *data) noexcept;

}  // namespace pulsora
