#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/context.h"

namespace pulsora {

namespace detail {
// Raw storage on a context's backend: 64-byte aligned, OutOfMemoryError if it cannot be had.
void *allocateBytes(const Context &context, int64_t count, size_t elementBytes);
void freeBytes(Backend backend, int device, void *stream, void *data) noexcept;
void copyBytes(const Context &context, void *to, const void *from, size_t bytes);
void fillZero(const Context &context, void *data, size_t bytes);
// Copies between host memory and the context's backend; ordered on its stream, complete on return.
void copyFromHost(const Context &context, void *to, const void *hostFrom, size_t bytes);
void copyToHost(const Context &context, void *hostTo, const void *from, size_t bytes);
// One value in the memory of the context's backend.
template <class T>
T valueOnHost(const Context &context, const T *value) {
  T copy{};
  copyToHost(context, &copy, value, sizeof copy);
  return copy;
}
}  // namespace detail

/// An array owned on one backend. It can be moved but not copied; only reserve() reallocates. On a
/// GPU its storage is freed in the order of the stream it was allocated on.
template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>, "a Buffer holds plain data");

 public:
  Buffer() = default;
  /// Uninitialised storage for `size` elements.
  Buffer(const Context &context, int64_t size)
      : backend_(context.backend),
        isLent_(context.allocator != nullptr),
        device_(context.device),
        stream_(context.stream),
        size_(size) {
    if (size > 0) data_ = static_cast<T *>(detail::allocateBytes(context, size, sizeof(T)));
  }
  /// Storage filled with zero bytes.
  static Buffer zeros(const Context &context, int64_t size) {
    Buffer buffer(context, size);
    if (size > 0) detail::fillZero(context, buffer.data_, buffer.bytes());
    return buffer;
  }
  ~Buffer() { release(); }
  Buffer(Buffer &&other) noexcept { swap(other); }
  Buffer &operator=(Buffer &&other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;

  /// Ensures storage for `size` elements, reusing the old one if it is large enough; contents are
  /// lost.
  void reserve(const Context &context, int64_t size) {
    const bool elsewhere = context.backend != backend_ || context.device != device_;
    if (size <= size_ && !elsewhere) return;
    if (!elsewhere) stream_ = context.stream;  // the stream that used the storage last
    *this = Buffer(context, size);
  }

  /// Frees the storage and keeps the size; data() is null until restoreStorage().
  void freeStorage(const Context &context) {
    if (context.backend == backend_ && context.device == device_) stream_ = context.stream;
    release();
  }
  /// Ends freeStorage(): gives the buffer storage again, uninitialised.
  void restoreStorage(const Context &context) {
    if (!data_ && size_ > 0) *this = Buffer(context, size_);
  }

  T *data() { return data_; }
  const T *data() const { return data_; }
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t bytes() const { return static_cast<size_t>(size_) * sizeof(T); }
  /// bytes(), or 0 while the storage is freed.
  size_t heldBytes() const { return data_ ? bytes() : 0; }

 private:
  void swap(Buffer &other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(backend_, other.backend_);
    std::swap(isLent_, other.isLent_);
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
  }
  void release() noexcept {
    if (data_ && !isLent_) detail::freeBytes(backend_, device_, stream_, data_);
    data_ = nullptr;
  }

  T *data_ = nullptr;
  Backend backend_ = Backend::Cpu;
  bool isLent_ = false;  // by the context's ScratchAllocator
  int device_ = 0;
  void *stream_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace pulsora
