#pragma once

// <limits> for NVRTC, which has no standard library: the number types that device models use.

namespace std {

template <class T>
struct numeric_limits {
  static_assert(sizeof(T) == 0, "numeric_limits of this type are not there on a GPU");
};

template <>
struct numeric_limits<float> {
  static constexpr bool is_specialized = true;
  static constexpr float min() { return 1.17549435e-38F; }
  static constexpr float max() { return 3.40282347e+38F; }
  static constexpr float lowest() { return -max(); }
  static constexpr float epsilon() { return 1.1920929e-7F; }
  static constexpr float infinity() { return __builtin_bit_cast(float, 0x7F800000U); }
  static constexpr float quiet_NaN() { return __builtin_bit_cast(float, 0x7FC00000U); }
};

template <>
struct numeric_limits<double> {
  static constexpr bool is_specialized = true;
  static constexpr double min() { return 2.2250738585072014e-308; }
  static constexpr double max() { return 1.7976931348623157e+308; }
  static constexpr double lowest() { return -max(); }
  static constexpr double epsilon() { return 2.220446049250313e-16; }
  static constexpr double infinity() { return __builtin_bit_cast(double, 0x7FF0000000000000UL); }
  static constexpr double quiet_NaN() { return __builtin_bit_cast(double, 0x7FF8000000000000UL); }
};

template <>
struct numeric_limits<int> {
  static constexpr bool is_specialized = true;
  static constexpr int max() { return 2147483647; }
  static constexpr int min() { return -max() - 1; }
  static constexpr int lowest() { return min(); }
};

template <>
struct numeric_limits<unsigned> {
  static constexpr bool is_specialized = true;
  static constexpr unsigned max() { return ~0U; }
  static constexpr unsigned min() { return 0; }
  static constexpr unsigned lowest() { return 0; }
};

template <>
struct numeric_limits<long> {
  static constexpr bool is_specialized = true;
  static constexpr long max() { return static_cast<long>(~0UL >> 1); }
  static constexpr long min() { return -max() - 1; }
  static constexpr long lowest() { return min(); }
};

template <>
struct numeric_limits<unsigned long> {
  static constexpr bool is_specialized = true;
  static constexpr unsigned long max() { return ~0UL; }
  static constexpr unsigned long min() { return 0; }
  static constexpr unsigned long lowest() { return 0; }
};

}  // namespace std
