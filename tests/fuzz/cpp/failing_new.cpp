// An operator new that can be told to fail, for a process that is started with this library in
// LD_PRELOAD. Only allocations of the thread that arms it count, so that other libraries' threads
// go on undisturbed.

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local long counted = 0;
thread_local long failing = -1;  // the number of the allocation that fails; none if negative
thread_local bool lasting = false;

void *allocate(std::size_t bytes, std::size_t alignment) {
  const long number = counted++;
  if (failing >= 0 && (number == failing || (lasting && number > failing))) return nullptr;
  if (bytes == 0) bytes = 1;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void *allocateOrThrow(std::size_t bytes, std::size_t alignment) {
  void *memory = allocate(bytes, alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}

constexpr std::size_t kUsual = alignof(std::max_align_t);

}  // namespace

// Starts to count; the allocation of this number fails, and with `last` all that follow.
extern "C" void pulsoraFailAt(long number, int last) {
  counted = 0;
  failing = number;
  lasting = last != 0;
}

// Ends it; how many allocations there were.
extern "C" long pulsoraDisarm() {
  failing = -1;
  return counted;
}

void *operator new(std::size_t n) { return allocateOrThrow(n, kUsual); }
void *operator new[](std::size_t n) { return allocateOrThrow(n, kUsual); }
void *operator new(std::size_t n, std::align_val_t a) {
  return allocateOrThrow(n, static_cast<std::size_t>(a));
}
void *operator new[](std::size_t n, std::align_val_t a) {
  return allocateOrThrow(n, static_cast<std::size_t>(a));
}
void *operator new(std::size_t n, const std::nothrow_t &) noexcept { return allocate(n, kUsual); }
void *operator new[](std::size_t n, const std::nothrow_t &) noexcept { return allocate(n, kUsual); }
void *operator new(std::size_t n, std::align_val_t a, const std::nothrow_t &) noexcept {
  return allocate(n, static_cast<std::size_t>(a));
}
void *operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t &) noexcept {
  return allocate(n, static_cast<std::size_t>(a));
}
void operator delete(void *p) noexcept { std::free(p); }
void operator delete[](void *p) noexcept { std::free(p); }
void operator delete(void *p, std::size_t) noexcept { std::free(p); }
void operator delete[](void *p, std::size_t) noexcept { std::free(p); }
void operator delete(void *p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void *p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void *p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void *p, std::size_t, std::align_val_t) noexcept { std::free(p); }
