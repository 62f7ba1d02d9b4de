#pragma once

#include <cstddef>
#include <cstdint>

// Memory that runs out when a test says so. failing_new.cpp replaces the program's operator new.

namespace pulsora::testing {

/// Makes allocations of its thread fail during its lifetime; at most one object per thread at a
/// time. Allocations are counted from 0 from its creation on.
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

  /// Allocations so far: of any size, or with FromThenOn only allocations that may fail.
  int64_t count() const { return state().count; }
  /// Number of failed allocations.
  int64_t failed() const { return state().failed; }

  /// For operator new in failing_new.cpp alone.
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

}  // namespace pulsora::testing
