#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

// Memory that runs out when a test says so. Replaces the program's operator new, so exactly one
// source of a program may include this header.

namespace RPU::testing {

/// While it lives, allocations of its thread fail as it says; there may be one per thread at a time.
/// They are counted from 0, from its creation on.
class FailingNew {
 public:
  enum class Kind {
    Never,       ///< only counts
    Once,        ///< allocation `number` fails, whatever it is for
    FromThenOn,  ///< allocation `number` and all later ones fail, but for small ones such as names
  };

  FailingNew(Kind kind, int64_t number) { state() = {kind, number, 0, 0}; }
  ~FailingNew() { state() = {}; }
  FailingNew(const FailingNew &) = delete;
  FailingNew &operator=(const FailingNew &) = delete;

  /// Allocations so far: of any size, or with FromThenOn of those that may fail.
  int64_t count() const { return state().count; }
  /// How many of them failed.
  int64_t failed() const { return state().failed; }

  /// For operator new alone.
  static bool refuses(size_t bytes, bool aligned) {
    State &s = state();
    if (s.kind == Kind::Never && s.number < 0) return false;  // there is no FailingNew
    constexpr size_t kSmall = 256;
    if (s.kind == Kind::FromThenOn && bytes < kSmall && !aligned) return false;
    const int64_t number = s.count++;
    const bool fails = s.kind == Kind::Once ? number == s.number
                                            : s.kind == Kind::FromThenOn && number >= s.number;
    s.failed += fails;
    return fails;
  }

 private:
  struct State {
    Kind kind = Kind::Never;
    int64_t number = -1;
    int64_t count = 0;
    int64_t failed = 0;
  };
  static State &state() {
    thread_local State ofThread;
    return ofThread;
  }
};

inline void *allocateOrNull(size_t bytes, size_t alignment) noexcept {
  if (FailingNew::refuses(bytes, alignment > 0)) return nullptr;
  bytes = bytes > 0 ? bytes : 1;
  if (alignment == 0) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

inline void *allocateOrThrow(size_t bytes, size_t alignment) {
  void *data = allocateOrNull(bytes, alignment);
  if (!data) throw std::bad_alloc();
  return data;
}

}  // namespace RPU::testing

// NOLINTBEGIN(misc-definitions-in-headers): see above
void *operator new(size_t bytes) { return RPU::testing::allocateOrThrow(bytes, 0); }
void *operator new(size_t bytes, const std::nothrow_t &) noexcept {
  return RPU::testing::allocateOrNull(bytes, 0);
}
void *operator new(size_t bytes, std::align_val_t alignment) {
  return RPU::testing::allocateOrThrow(bytes, static_cast<size_t>(alignment));
}
void *operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t &) noexcept {
  return RPU::testing::allocateOrNull(bytes, static_cast<size_t>(alignment));
}
void operator delete(void *data) noexcept { std::free(data); }
void operator delete(void *data, size_t) noexcept { std::free(data); }
void operator delete(void *data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void *data, size_t, std::align_val_t) noexcept { std::free(data); }
// NOLINTEND(misc-definitions-in-headers)
