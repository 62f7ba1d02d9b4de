#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

namespace pulsora {

/// Allocates memory for the tensors of states. New elements are not set to zero, and large memory
/// is asked of the system in huge pages: with pages of 4 KiB, a copy waits for them most of the
/// time.
template <class T>
struct HostAllocator {
  using value_type = T;

  HostAllocator() = default;
  template <class Other>
  HostAllocator(const HostAllocator<Other> & /*other*/) {}  // NOLINT(google-explicit-constructor)

  T *allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes < kLarge) return std::allocator<T>().allocate(count);
    void *const memory = ::operator new(bytes, kPage);
#ifdef MADV_HUGEPAGE
    static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));  // advice, which may be refused
#endif
    return static_cast<T *>(memory);
  }
  void deallocate(T *memory, size_t count) {
    if (count * sizeof(T) < kLarge) {
      std::allocator<T>().deallocate(memory, count);
    } else {
      ::operator delete(memory, kPage);
    }
  }
  template <class U>
  void construct(U *element) {
    ::new (static_cast<void *>(element)) U;
  }
  template <class U, class... Arguments>
  void construct(U *element, Arguments &&...arguments) {
    ::new (static_cast<void *>(element)) U(std::forward<Arguments>(arguments)...);
  }

  friend bool operator==(const HostAllocator & /*a*/, const HostAllocator & /*b*/) { return true; }
  friend bool operator!=(const HostAllocator & /*a*/, const HostAllocator & /*b*/) { return false; }

 private:
  static constexpr size_t kLarge = size_t{8} << 20;
  static constexpr std::align_val_t kPage{size_t{2} << 20};
};

/// Bytes of a tensor in host memory. resize() leaves new bytes undetermined.
using HostBytes = std::vector<std::byte, HostAllocator<std::byte>>;

}  // namespace pulsora
