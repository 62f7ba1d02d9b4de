#pragma once

#include <cstddef>

namespace pulsora {

/// Another library's allocator for storage on GPUs, in the order of streams. Buffers take their
/// storage from it, so that one library counts and caches all memory; buffers of less than
/// kLeastBorrowedBytes, and those made while their stream is being captured, take it from the
/// library's own pool. Calls come from any thread, and the device is the current one.
class StorageSource {
 public:
  virtual ~StorageSource() = default;
  /// Storage for work on `stream`, aligned to 256 bytes; null if this source cannot be used.
  /// OutOfMemoryError if none is left.
  virtual void *allocate(int device, void *stream, size_t bytes) = 0;
  /// Ends the use of storage, by work that its stream has been given so far.
  virtual void release(int device, void *data) noexcept = 0;
};

constexpr size_t kLeastBorrowedBytes = 16 * 1024;

/// Makes buffers take their storage from `source` from now on, which lives as long as the process;
/// null: from the library's own pool. Without CUDA, does nothing.
void setStorageSource(StorageSource *source);

}  // namespace pulsora
