#pragma once

#include <cstddef>
#include <cstdint>

#include "core/exec.h"
#include "core/platform.h"

namespace pulsora {

/// Memory that a caller lends to operations for the duration of a call.
class ScratchAllocator {
 public:
  virtual ~ScratchAllocator() = default;
  /// Returns at least `bytes` bytes on the context's backend, aligned to 64, for work enqueued on
  /// its stream from now on. The memory stays lent until that work has been enqueued.
  virtual void *allocate(size_t bytes) = 0;
  /// Like allocate(), but returns one piece of memory to all callers, whose uses must not overlap.
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

class ScratchOperation;

/// The device, stream and settings of an operation. Passed by argument to everything that computes;
/// there is no current device and no global thread count.
struct Context {
  Backend backend = Backend::Cpu;
  CpuExec cpu;     // threads and instruction set
  int device = 0;  // CUDA ordinal
  /// cudaStream_t on which everything is enqueued; null is the default stream. It must outlive
  /// every object made with it.
  void *stream = nullptr;
  GpuProducts gpuProducts = GpuProducts::Single;
  /// On a GPU, a word in device memory that is set when a non-finite input is seen. While it is
  /// set, updates change nothing. Null: inputs are known to be finite.
  uint32_t *nonfiniteFlag = nullptr;
  /// Allocator of operations' memory during a call, such as memory of a graph that the caller is
  /// capturing; null: the library's own. Objects that outlive the call must not be made with one.
  ScratchAllocator *allocator = nullptr;
  /// The operation that ScratchBuffers borrow from (core/scratch.h); null: they own their storage.
  ScratchOperation *scratch = nullptr;
  /// Rows of the mini-batch that a read's rows are a part of; 0: they are all. On a GPU this number
  /// determines the order of sums, so that a part of a batch has the bits of the whole batch.
  int64_t batchRows = 0;
  /// Whether reads count how often bound management repeats them (BlockRead::repeats()). Not for a
  /// read that is made again in the simulation alone, or for a part of a mini-batch.
  bool countsRepeats = true;

  /// Rows of the mini-batch, for a read of `rows` rows.
  int64_t rowsOfBatch(int64_t rows) const { return batchRows > rows ? batchRows : rows; }
  bool onCpu() const { return backend == Backend::Cpu; }
};

}  // namespace pulsora
