#pragma once

#include <type_traits>

#include "core/context.h"
#include "core/view.h"
#include "numerics/half.h"
#include "numerics/random.h"

// The element functors of linalg/: at(i, j) computes one element; operator() computes the element
// with a given number in row-major order (see forEach).

namespace pulsora {

/// The value converted to another type: rounded to nearest, ties to even, if Dst is a
/// floating-point type or Half; towards 0 if it is an integer type.
template <class Dst, class Src>
PULSORA_HD Dst convertElement(Src value) {
  if constexpr (std::is_same_v<Src, Dst>) {
    return value;
  } else if constexpr (std::is_same_v<Src, Half>) {
    return static_cast<Dst>(halfToFloat(value.bits));
  } else if constexpr (std::is_same_v<Dst, Half>) {
    return Half{floatToHalf(static_cast<float>(value))};
  } else {
    return static_cast<Dst>(value);
  }
}

/// A copy between matrices of one shape and any layouts.
template <class Src, class Dst>
struct ElementCopier {
  MatrixView<const Src> from;
  MatrixView<Dst> to;

  PULSORA_HD void at(int64_t i, int64_t j) const { to(i, j) = convertElement<Dst>(from(i, j)); }
  PULSORA_HD void operator()(int64_t i) const { at(i / to.cols, i % to.cols); }
};

/// Sixteen bytes of any numbers.
struct alignas(16) SixteenBytes {
  uint32_t words[4];
};

/// A copy of memory, 16 bytes at a time.
struct MemoryCopier {
  const SixteenBytes *from;
  SixteenBytes *to;

  PULSORA_HD void operator()(int64_t i) const { to[i] = from[i]; }
};

/// Every pair of element types that elemcopy takes: each type to itself, and from and to float.
// clang-format off
#define PULSORA_FOR_EACH_COPY(Pair) \
  Pair(float, float)            \
  Pair(float, double)           \
  Pair(float, Half)             \
  Pair(float, int32_t)          \
  Pair(float, int64_t)          \
  Pair(float, uint8_t)          \
  Pair(double, float)           \
  Pair(Half, float)             \
  Pair(int32_t, float)          \
  Pair(int64_t, float)          \
  Pair(uint8_t, float)          \
  Pair(double, double)          \
  Pair(Half, Half)              \
  Pair(int32_t, int32_t)        \
  Pair(int64_t, int64_t)        \
  Pair(uint8_t, uint8_t)
// clang-format on

/// The GPU's copy from a column-major view to a row-major one: tile by tile through shared memory,
/// so that neighbouring threads read and write neighbouring elements. Defined in
/// cuda/linalg/transpose.cu.
template <class Src, class Dst>
void cudaTransposingCopy(const Context &context, const ElementCopier<Src, Dst> &copier);

/// a(i, j) *= factor; factor 0 gives 0 whatever a held.
struct ElementScaler {
  float factor;
  MatrixView<float> a;

  PULSORA_HD void at(int64_t i, int64_t j) const {
    a(i, j) = factor == 0.0f ? 0.0f : factor * a(i, j);
  }
  PULSORA_HD void operator()(int64_t i) const { at(i / a.cols, i % a.cols); }
};

/// Two normal values per call: elements 2 i and 2 i + 1 in row-major order, the second only if it
/// exists.
struct NormalPairWriter {
  RandomKey key;
  uint64_t number;  // number of the initialisation
  float deviation;
  MatrixView<float> to;

  PULSORA_HD void operator()(int64_t i) const {
    const Philox4 block = draw(key, Purpose::Reinit, static_cast<uint64_t>(i), number);
    const NormalPair pair = normalPair(block.v[0], block.v[1]);
    write(2 * i, deviation * pair.z0);
    if (2 * i + 1 < to.size()) write(2 * i + 1, deviation * pair.z1);
  }
  PULSORA_HD void write(int64_t element, float value) const {
    to(element / to.cols, element % to.cols) = value;
  }
};

}  // namespace pulsora
