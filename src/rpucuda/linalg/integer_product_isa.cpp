#include "linalg/integer_kernel.h"
#include "linalg/integer_vectors.h"

// Compiled once per instruction set. Everything here is in an anonymous namespace and nothing comes
// from the standard library (see gemm_isa.cpp).

namespace pulsora {
namespace {

/// The levels of a pair of inputs as one number.
int32_t pairAt(const int16_t *levels) {
  int32_t pair;
  __builtin_memcpy(&pair, levels, sizeof pair);
  return pair;
}

#ifdef __SSE4_1__

/// The digits of two vectors of weights, side by side.
template <int kDigits>
struct Digits {
  Integers of[kDigits];

  Digits() = default;
  Digits(const IntegerDigits &by, Floats firstWeights, Floats secondWeights) {
    const Floats low = everywhere(-by.integers.largest);
    const Floats high = everywhere(by.integers.largest);
    const Floats scale = everywhere(by.integers.scale);
    const Integers first = rounded(times(firstWeights, scale), low, high);
    const Integers second = rounded(times(secondWeights, scale), low, high);
    if (kDigits == 1 || by.lowBits == 16) {
      of[0] = alternate(first, shiftedUp(second, 16));
      const Integers half = everywhere(1 << 15);
      of[kDigits - 1] =
          kDigits == 1 ? of[0] : alternate(upperWords(plus(first, half)), plus(second, half));
      return;
    }
    const Integers half = everywhere(1 << 11);
    const Integers upperFirst = shiftedDown(plus(first, half), 12);
    const Integers upperSecond = shiftedDown(plus(second, half), 12);
    of[0] = alternate(minus(first, shiftedUp(upperFirst, 12)),
                      shiftedUp(minus(second, shiftedUp(upperSecond, 12)), 16));
    of[kDigits - 1] = alternate(upperFirst, shiftedUp(upperSecond, 16));
  }
};

/// Sums of digits for R rows.
template <int kDigits, int R>
struct Accumulators {
  Integers of[R][kDigits];

  void clear() {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int d = 0; d < kDigits; ++d) of[r][d] = zero();
    }
  }
  void add(int r, Integers pair, const Integers *digits) {
#pragma GCC unroll 2
    for (int d = 0; d < kDigits; ++d) of[r][d] = addPairs(of[r][d], pair, digits[d]);
  }
  /// The sums of a row in one half of the lanes.
  Doubles low(int r, double factor) const {
    const Doubles sum = lowDoubles(of[r][0]);
    return kDigits == 1 ? sum : plus(sum, times(lowDoubles(of[r][kDigits - 1]), factor));
  }
  Doubles high(int r, double factor) const {
    const Doubles sum = highDoubles(of[r][0]);
    return kDigits == 1 ? sum : plus(sum, times(highDoubles(of[r][kDigits - 1]), factor));
  }
  void store(const IntegerSums &to) const {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      Doubles below = low(r, to.factor);
      Doubles above = high(r, to.factor);
      double *acc = to.acc + r * kLanes;
      if (!to.fresh) {
        below = plus(below, loadDoubles(acc));
        above = plus(above, loadDoubles(acc + kLanes / 2));
      }
      if (to.out) {
        saveFloats(to.out + r * to.outRow, below, above, to.unit);
      } else {
        save(acc, below);
        save(acc + kLanes / 2, above);
      }
    }
  }
};

template <int kDigits, int R>
void micro(int64_t pairs, const int16_t *levels, int64_t levelRow, const int16_t *digits,
           const IntegerSums &to) {
  Accumulators<kDigits, R> sums;
  sums.clear();
  for (int64_t k = 0; k < pairs; ++k) {
    Integers digit[kDigits];
#pragma GCC unroll 2
    for (int d = 0; d < kDigits; ++d) digit[d] = load(digits + d * 2 * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sums.add(r, everywhere(pairAt(levels + r * levelRow)), digit);
    levels += 2;
    digits += 2 * kDigits * kLanes;
  }
  sums.store(to);
}

template <int kDigits, int R>
void columns(const IntegerDigits &by, int64_t size, const float *weights, int64_t row,
             const int16_t *levels, int64_t levelRow, const IntegerSums &to) {
  Accumulators<kDigits, R> sums;
  sums.clear();
  for (int64_t k = 0; k < size; k += 2, weights += 2 * row, levels += 2) {
    const Floats second = k + 1 < size ? loadFloats(weights + row) : everywhere(0.0f);
    const Digits<kDigits> digits(by, loadFloats(weights), second);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sums.add(r, everywhere(pairAt(levels + r * levelRow)), digits.of);
  }
  sums.store(to);
}

template <int kDigits, int R>
void dots(const IntegerDigits &by, int64_t size, const float *weights, const int16_t *levels,
          int64_t levelRow, double factor, bool fresh, double *acc) {
  Accumulators<kDigits, R> sums;
  sums.clear();
  float rest[2 * kLanes];
  for (int64_t k = 0; k < size; k += 2 * kLanes) {
    const float *from = weights + k;
    if (k + 2 * kLanes > size) {
      for (int i = 0; i < 2 * kLanes; ++i) rest[i] = k + i < size ? from[i] : 0.0f;
      from = rest;
    }
    const Digits<kDigits> digits(by, loadFloats(from), loadFloats(from + kLanes));
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sums.add(r, load(levels + r * levelRow + k), digits.of);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    double parts[kLanes / 2];
    save(parts, plus(sums.low(r, factor), sums.high(r, factor)));
    double sum = fresh ? 0.0 : acc[r];
    for (int i = 0; i < kLanes / 2; ++i) sum += parts[i];
    acc[r] = sum;
  }
}

template <int kDigits>
void makeDigitsOf(const IntegerDigits &by, int64_t pairs, const float *weights, int64_t row,
                  int16_t *digits) {
  for (int64_t k = 0; k < pairs; ++k, weights += 2 * row) {
    const Digits<kDigits> made(by, loadFloats(weights), loadFloats(weights + row));
#pragma GCC unroll 2
    for (int d = 0; d < kDigits; ++d, digits += 2 * kLanes) save(digits, made.of[d]);
  }
}

void makeDigits(const IntegerDigits &by, int64_t pairs, const float *weights, int64_t row,
                int16_t *digits) {
  (by.count == 1 ? makeDigitsOf<1> : makeDigitsOf<2>)(by, pairs, weights, row, digits);
}

#else

constexpr int kLanes = 4;
constexpr int kRows = 4;
constexpr int kFewRows = 1;

/// The digit of a weight.
int32_t digitOf(const IntegerDigits &by, float weight, int d) {
  const int32_t v = integerOf(by.integers, weight);
  if (by.count == 1) return v;
  const int32_t upper = (v + (1 << (by.lowBits - 1))) >> by.lowBits;
  return d == 1 ? upper : v - upper * (1 << by.lowBits);
}

void storeSum(const IntegerSums &to, int r, int l, double sum) {
  double &acc = to.acc[r * kLanes + l];
  if (!to.fresh) sum += acc;
  if (to.out) {
    to.out[r * to.outRow + l] = static_cast<float>(sum) * to.unit;
  } else {
    acc = sum;
  }
}

template <int kDigits, int R>
void micro(int64_t pairs, const int16_t *levels, int64_t levelRow, const int16_t *digits,
           const IntegerSums &to) {
  for (int r = 0; r < R; ++r) {
    for (int l = 0; l < kLanes; ++l) {
      double sum = 0.0;
      for (int64_t k = 0; k < pairs; ++k) {
        const int16_t *n = levels + r * levelRow + 2 * k;
        for (int d = 0; d < kDigits; ++d) {
          const int16_t *v = digits + (kDigits * k + d) * 2 * kLanes + 2 * l;
          sum += (d == 0 ? 1.0 : to.factor) * (n[0] * v[0] + n[1] * v[1]);
        }
      }
      storeSum(to, r, l, sum);
    }
  }
}

template <int kDigits, int R>
void columns(const IntegerDigits &by, int64_t size, const float *weights, int64_t row,
             const int16_t *levels, int64_t levelRow, const IntegerSums &to) {
  for (int r = 0; r < R; ++r) {
    for (int l = 0; l < kLanes; ++l) {
      double sum = 0.0;
      for (int64_t k = 0; k < size; ++k)
        sum += double(levels[r * levelRow + k]) * integerOf(by.integers, weights[k * row + l]);
      storeSum(to, r, l, sum);
    }
  }
}

template <int kDigits, int R>
void dots(const IntegerDigits &by, int64_t size, const float *weights, const int16_t *levels,
          int64_t levelRow, double, bool fresh, double *acc) {
  for (int r = 0; r < R; ++r) {
    double sum = fresh ? 0.0 : acc[r];
    for (int64_t k = 0; k < size; ++k) {
      const int64_t block = k / (2 * kLanes) * (2 * kLanes);
      const int64_t at = block + 2 * (k % kLanes) + (k - block) / kLanes;
      sum += double(levels[r * levelRow + at]) * integerOf(by.integers, weights[k]);
    }
    acc[r] = sum;
  }
}

void makeDigits(const IntegerDigits &by, int64_t pairs, const float *weights, int64_t row,
                int16_t *digits) {
  for (int64_t k = 0; k < pairs; ++k, weights += 2 * row) {
    for (int d = 0; d < by.count; ++d, digits += 2 * kLanes) {
      for (int i = 0; i < 2 * kLanes; ++i)
        digits[i] = static_cast<int16_t>(digitOf(by, weights[i % 2 * row + i / 2], d));
    }
  }
}

#endif

void interleave(const int16_t *levels, int64_t size, int16_t *to) {
  for (int64_t k = 0; k < size; k += 2 * kLanes, to += 2 * kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      to[2 * i] = k + i < size ? levels[k + i] : int16_t{0};
      to[2 * i + 1] = k + kLanes + i < size ? levels[k + kLanes + i] : int16_t{0};
    }
  }
}

void store(const double *acc, int64_t rows, int64_t cols, float unit, float *out, int64_t outRow,
           int64_t outCol) {
  for (int64_t r = 0; r < rows; ++r) {
    const double *from = acc + r * kLanes;
    float *to = out + r * outRow;
    if (outCol == 1 && cols == kLanes) {  // literal bounds make vector loads
      for (int l = 0; l < kLanes; ++l) to[l] = static_cast<float>(from[l]) * unit;
    } else {
      for (int64_t l = 0; l < cols; ++l) to[l * outCol] = static_cast<float>(from[l]) * unit;
    }
  }
}

template <int R>
void listKernels(IntegerKernel &kernel) {
  kernel.micro[0][R - 1] = micro<1, R>;
  kernel.micro[1][R - 1] = micro<2, R>;
  if constexpr (R <= kFewRows) {
    kernel.columns[0][R - 1] = columns<1, R>;
    kernel.columns[1][R - 1] = columns<2, R>;
    kernel.dots[0][R - 1] = dots<1, R>;
    kernel.dots[1][R - 1] = dots<2, R>;
  }
  if constexpr (R > 1) listKernels<R - 1>(kernel);
}

IntegerKernel makeKernel() {
  IntegerKernel kernel{};
  kernel.lanes = kLanes;
  kernel.maxRows = kRows;
  kernel.fewRows = kFewRows;
  listKernels<kRows>(kernel);
  kernel.makeDigits = makeDigits;
  kernel.interleave = interleave;
  kernel.store = store;
  return kernel;
}

}  // namespace

template <>
const IntegerKernel &integerKernel<Isa::PULSORA_ISA>() {
  static const IntegerKernel kernel = makeKernel();
  return kernel;
}

}  // namespace pulsora
