#include "util/failing_new.h"

#include <cstdlib>
#include <new>

// In a source of its own: inlined into a caller, free() of memory from operator new would make the
// compiler warn.

namespace pulsora::testing {
namespace {

void *allocateOrNull(size_t bytes, size_t alignment) noexcept {
  if (FailingNew::refuses(bytes, alignment > 0)) return nullptr;
  bytes = bytes > 0 ? bytes : 1;
  if (alignment == 0) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void *allocateOrThrow(size_t bytes, size_t alignment) {
  void *data = allocateOrNull(bytes, alignment);
  if (!data) throw std::bad_alloc();
  return data;
}

}  // namespace
}  // namespace pulsora::testing

// The array forms too: a sanitizer's array forms do not call the others.
void *operator new(size_t bytes) { return pulsora::testing::allocateOrThrow(bytes, 0); }
void *operator new[](size_t bytes) { return ::operator new(bytes); }
void *operator new(size_t bytes, const std::nothrow_t &) noexcept {
  return pulsora::testing::allocateOrNull(bytes, 0);
}
void *operator new[](size_t bytes, const std::nothrow_t &tag) noexcept {
  return ::operator new(bytes, tag);
}
void *operator new(size_t bytes, std::align_val_t alignment) {
  return pulsora::testing::allocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void *operator new[](size_t bytes, std::align_val_t alignment) {
  return ::operator new(bytes, alignment);
}
void *operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t &) noexcept {
  return pulsora::testing::allocateOrNull(bytes, static_cast<size_t>(alignment));
}
void *operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t &tag) noexcept {
  return ::operator new(bytes, alignment, tag);
}
void operator delete(void *data) noexcept { std::free(data); }
void operator delete(void *data, size_t) noexcept { std::free(data); }
void operator delete(void *data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void *data, size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void *data) noexcept { std::free(data); }
void operator delete[](void *data, size_t) noexcept { std::free(data); }
void operator delete[](void *data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void *data, size_t, std::align_val_t) noexcept { std::free(data); }
