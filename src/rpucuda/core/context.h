#pragma once

#include <cstddef>
#include <cstdint>

#include "core/exec.h"
#include "core/platform.h"

namespace pulsora {

/// Memory that a caller lends to operations for the time of their call.
class ScratchAllocator {
 public:
  virtual ~ScratchAllocator() = default;
  /// At least so many bytes on the backend of the context, aligned to 64, for the use of work enqueued
  /// on its stream from now on. They stay lent until that work has been enqueued.
  virtual void *allocate(size_t bytes) = 0;
  /// The same, but one piece of memory for all that ask: for uses that follow one another.
  void *allocateShared(size_t bytes) {
    if (bytes > sharedBytes_) {
      shared_ = allocate(bytes);
      sharedBytes_ = bytes;
    }
    return shared_;
  }

 private:
  void *shared_ = nullptr;
  size_t sharedBytes_ = 0;
};

/// Where and how an operation runs. Passed by argument to everything that computes; there is no
/// current device and no global thread count.
struct Context {
  Backend backend = Backend::Cpu;
  CpuExec cpu;     // threads, instruction set, kind of matrix products
  int device = 0;  // CUDA ordinal
  /// cudaStream_t on which everything is enqueued; null is the default stream. It must outlive
  /// every object made with it.
  void *stream = nullptr;
  GpuProducts gpuProducts = GpuProducts::Single;
  /// On a GPU, a word in device memory that is set when a non-finite input is seen. While it is
  /// set, updates change nothing. Null: inputs are known to be finite.
  uint32_t *nonfiniteFlag = nullptr;
  /// Whose memory operations use for what they need during a call, such as that of a graph which the
  /// caller is capturing; null: the library's own. Objects that outlive the call must not be made
  /// with one.
  ScratchAllocator *allocator = nullptr;
  /// Rows of the mini-batch that a read's rows are a part of; 0: they are all. On a GPU the order of sums
  /// follows from this number, so that a part has the bits it has in a read of the whole.
  int64_t batchRows = 0;

  /// Of the mini-batch, for a read of `rows` rows.
  int64_t rowsOfBatch(int64_t rows) const { return batchRows > rows ? batchRows : rows; }
  bool onCpu() const { return backend == Backend::Cpu; }
};

}  // namespace pulsora
