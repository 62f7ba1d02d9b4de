#pragma once

#include <limits>

// The types used in tables of parameters, which parameters/field.h reads and writes. None of the
// types needs a host, so that a run-time compiler can read the device models, which use them.

namespace pulsora {

/// Admissible interval of a number; an open end is excluded.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool lowOpen = false;
  bool highOpen = false;

  bool contains(double v) const {
    return (lowOpen ? v > low : v >= low) && (highOpen ? v < high : v <= high);
  }
};

inline Range anyNumber() { return {}; }
inline Range positive() { return {0.0, std::numeric_limits<double>::infinity(), true, false}; }
inline Range nonNegative() { return {0.0, std::numeric_limits<double>::infinity(), false, false}; }
inline Range nonPositive() { return {-std::numeric_limits<double>::infinity(), 0.0, false, false}; }
inline Range atLeast(double low) {
  return {low, std::numeric_limits<double>::infinity(), false, false};
}
inline Range between(double low, double high) { return {low, high, false, false}; }
inline Range probability() { return between(0.0, 1.0); }

/// The names of an enum's values, in order, as users write them. Specialise for each enum that is a
/// parameter: `template <> struct EnumNames<PulseType> { static constexpr const char *kNames[] =
/// {"none", ...}; };`
template <class Enum>
struct EnumNames;

/// A number that may instead be left to the library, written as a keyword (`lora_alpha="auto"`).
template <class T>
struct Auto {
  bool automatic = false;
  T value{};

  Auto() = default;
  Auto(T number) : value(number) {}  // NOLINT(google-explicit-constructor): `rank = 4` is meant
  static Auto byLibrary() {
    Auto made;
    made.automatic = true;
    return made;
  }
  bool operator==(T number) const { return !automatic && value == number; }
};
using AutoFloat = Auto<float>;
using AutoInt = Auto<int>;
using AutoLong = Auto<int64_t>;

/// A list of at most kCapacity numbers that stays a plain struct, so that it can be handed to a
/// CUDA kernel by value.
struct FloatList {
  static constexpr int kCapacity = 64;
  int count = 0;
  float values[kCapacity] = {};
};

}  // namespace pulsora
