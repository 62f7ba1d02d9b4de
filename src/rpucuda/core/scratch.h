#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/buffer.h"
#include "core/check.h"
#include "core/context.h"

// Scratch memory: what an operation needs while it runs, and nothing of which outlives it. It is
// lent by arenas, so that the operations of all objects in a stream share it.

namespace pulsora {

/// An operation asked for more scratch memory than its limit.
class ScratchLimitReached final : public OutOfMemoryError {
 public:
  using OutOfMemoryError::OutOfMemoryError;
};

/// The most scratch memory, in bytes, of an operation that can be made in blocks of rows. At first
/// the number in the environment variable PULSORA_SCRATCH_LIMIT (ConfigError if that is none), or
/// else 256 MiB.
int64_t scratchLimit();
/// Sets the limit. ConfigError unless it is positive.
void setScratchLimit(int64_t bytes);
/// Whether the limit was set by anyone. The library's own gives way to blocks of a few rows.
bool scratchLimitIsSet();

/// The scratch memory of a device, in bytes.
struct ScratchMemory {
  int64_t inUse = 0;  ///< lent to operations that run
  int64_t held = 0;   ///< owned by arenas, lent or not
  int64_t peak = 0;   ///< the largest inUse
};
ScratchMemory scratchMemory(Backend backend, int device = 0);
/// Lets the peak begin anew from what is in use.
void resetScratchPeak(Backend backend, int device = 0);

/// Source of the memory of arenas, in the order of the context's stream. allocate() returns memory
/// aligned to 64 bytes or throws OutOfMemoryError.
class ScratchSource {
 public:
  virtual ~ScratchSource() = default;
  virtual void *allocate(const Context &context, size_t bytes) = 0;
  virtual void release(Backend backend, int device, void *stream, void *data) noexcept = 0;

  /// The library's own: host memory, and on a GPU a pool of cudaMallocAsync().
  static ScratchSource &own();
  /// Makes arenas use a source from now on, which must outlive what it has allocated; returns the
  /// one before.
  static ScratchSource &exchange(ScratchSource &source);
};

class ScratchArena;
class ScratchOperation;

/// The arenas of one device and stream; on the CPU, of one thread. An operation has an arena to
/// itself. Memory stays with its pool, up to scratchLimit() in an arena.
class ScratchPool {
 public:
  ScratchPool();
  ~ScratchPool();
  ScratchPool(const ScratchPool &) = delete;
  ScratchPool &operator=(const ScratchPool &) = delete;

  /// The pool of a context. On a GPU it lives as long as somebody holds it.
  static std::shared_ptr<ScratchPool> of(const Context &context);
  /// Makes `pool` the one of a GPU's stream; returns the one before, which may be null.
  static std::shared_ptr<ScratchPool> exchange(int device, void *stream,
                                               const std::shared_ptr<ScratchPool> &pool);

  /// Whether operations that a graph captures run once, in the order of the stream, so that later
  /// ones may have their memory. Otherwise such a graph may run at any time, and keeps it.
  void setGraphsRunOnce(bool runOnce);

 private:
  friend class ScratchOperation;
  struct Lists;
  std::unique_ptr<ScratchArena> take();
  void give(std::unique_ptr<ScratchArena> arena, bool forGood) noexcept;

  std::unique_ptr<Lists> lists_;
};

namespace detail {

/// A ScratchBuffer without its type.
class ScratchPiece {
 public:
  ScratchPiece() = default;
  ~ScratchPiece() { leave(); }
  ScratchPiece(ScratchPiece &&other) noexcept { swap(other); }
  ScratchPiece &operator=(ScratchPiece &&other) noexcept {
    swap(other);
    return *this;
  }
  ScratchPiece(const ScratchPiece &) = delete;
  ScratchPiece &operator=(const ScratchPiece &) = delete;

  void reserve(const Context &context, int64_t count, size_t elementBytes, bool counts);
  void *data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  friend class pulsora::ScratchArena;
  void swap(ScratchPiece &other) noexcept;
  void leave() noexcept;
  void useKept();

  void *data_ = nullptr;
  size_t bytes_ = 0;
  Buffer<std::byte> kept_;          // outside operations
  ScratchArena *lender_ = nullptr;  // which lists this piece at `place_`
  size_t place_ = 0;
};

}  // namespace detail

/// An array of plain data that an operation needs while it runs. Within a ScratchOperation of the
/// context, reserve() borrows its storage, and the end of the operation takes it back: the array is
/// then empty. Without one, the storage is the array's own, as in a Buffer.
template <class T>
class ScratchBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "a ScratchBuffer holds plain data");

 public:
  /// Ensures storage for `size` elements; contents are lost if it has to be another one.
  void reserve(const Context &context, int64_t size) {
    piece_.reserve(context, size, sizeof(T), true);
  }
  /// reserve() of memory that does not count for the limit of the operation.
  void reserveBeyondLimit(const Context &context, int64_t size) {
    piece_.reserve(context, size, sizeof(T), false);
  }

  T *data() { return static_cast<T *>(piece_.data()); }
  const T *data() const { return static_cast<const T *>(piece_.data()); }
  int64_t size() const { return static_cast<int64_t>(piece_.bytes() / sizeof(T)); }
  bool empty() const { return size() == 0; }
  size_t bytes() const { return piece_.bytes(); }

 private:
  detail::ScratchPiece piece_;
};

/// An operation of objects in one context, from construction to destruction, on one thread. During
/// it, `context.scratch` says so, and ScratchBuffers borrow from an arena. Within another operation
/// of the same context it does nothing.
class ScratchOperation {
 public:
  explicit ScratchOperation(Context &context);
  ~ScratchOperation();
  ScratchOperation(const ScratchOperation &) = delete;
  ScratchOperation &operator=(const ScratchOperation &) = delete;

  /// Lets reserve() throw ScratchLimitReached beyond scratchLimit(), of which operations whose
  /// launches are merged (BatchedLaunches) have equal parts; or not, as at the beginning.
  void setLimited(bool limited);
  /// Takes back all that was lent. The work that uses it must have been enqueued.
  void takeBack();
  /// A number that no other operation has, and this one not before takeBack(). So it tells whether
  /// what was lent still holds what this operation has written there.
  uint64_t number() const;

 private:
  friend class detail::ScratchPiece;
  struct Lease;

  Context &context_;
  std::shared_ptr<Lease> lease_;  // null within another operation
};

}  // namespace pulsora
