#include "linalg/integer_kernel.h"
#include "linalg/integer_vectors.h"

// Compiled once per instruction set. Everything here is in an anonymous namespace and nothing comes
// from the standard library (see gemm_isa.cpp).

namespace pulsora {
namespace {

using Cut = IntegerDigits::Cut;
constexpr int kPairs = IntegerKernel::kPairs;

#ifdef __SSE4_1__

/// The levels of a pair of inputs as one number.
int32_t pairAt(const int16_t *levels) {
  int32_t pair;
  __builtin_memcpy(&pair, levels, sizeof pair);
  return pair;
}

/// Makes the digits of two vectors of weights, side by side. Without `kSaturates`, weights beyond
/// the integers are noticed instead, where that takes less (Low16).
template <Cut kCut, bool kSaturates>
struct DigitMaker {
  static constexpr int kDigits = kCut == Cut::Whole ? 1 : 2;
  static constexpr bool kNotices = kCut == Cut::Low16 && !kSaturates;

  Floats scale, largest;
  Integers extreme = zero();  // the largest upper digit

  explicit DigitMaker(const IntegerDigits &by)
      : scale(everywhere(by.integers.scale)), largest(everywhere(by.integers.largest)) {}

  Integers integersOf(Floats weights) const {
    const Floats scaled = times(weights, scale);
    return rounded(kNotices ? scaled : within(scaled, largest));
  }
  void make(Floats firstWeights, Floats secondWeights, Integers *digits) {
    const Integers first = integersOf(firstWeights);
    const Integers second = integersOf(secondWeights);
    if constexpr (kCut == Cut::Low12) {
      const Integers half = everywhere(1 << 11);
      const Integers upperFirst = shiftedDown(plus(first, half), 12);
      const Integers upperSecond = shiftedDown(plus(second, half), 12);
      digits[0] = alternate(minus(first, shiftedUp(upperFirst, 12)),
                            shiftedUp(minus(second, shiftedUp(upperSecond, 12)), 16));
      digits[1] = alternate(upperFirst, shiftedUp(upperSecond, 16));
      return;
    }
    digits[0] = alternate(first, shiftedUp(second, 16));
    if constexpr (kCut == Cut::Low16) {
      const Integers half = everywhere(1 << 15);
      digits[1] = alternate(upperWords(plus(first, half)), plus(second, half));
      if constexpr (kNotices) extreme = largestWords(extreme, digits[1]);
    }
  }
  /// Whether no weight was beyond the integers. (With an upper digit of 128 one may have been.)
  bool fits() const { return !kNotices || areWordsBelow(extreme, 128); }
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
  void store(const DigitSums &to) const {
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
           const DigitSums &to) {
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

template <Cut kCut>
void makeDigits(const IntegerDigits &by, int64_t pairs, const float *weights, int64_t row,
                int16_t *digits) {
  using Maker = DigitMaker<kCut, true>;
  Maker maker(by);
  for (int64_t k = 0; k < pairs; ++k, weights += 2 * row) {
    Integers made[Maker::kDigits];
    maker.make(loadFloats(weights), loadFloats(weights + row), made);
#pragma GCC unroll 2
    for (int d = 0; d < Maker::kDigits; ++d, digits += 2 * kLanes) save(digits, made[d]);
  }
}

/// Both `addColumns` and, with `kLines`, `addLines`.
template <Cut kCut, bool kLines>
bool add(const IntegerDigits &by, int64_t rows, int64_t count, const float *weights,
         int64_t distance, const int16_t *levels, int32_t *sums) {
  using Maker = DigitMaker<kCut, false>;
  constexpr int kDigits = Maker::kDigits;
  constexpr int kPairLevels = kLines ? 2 * kLanes : 2;
  const int64_t next = kLines ? kLanes : distance;
  Maker maker(by);
  for (int64_t i = 0; i < count; ++i) {
    Integers digits[kPairs][kDigits];
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
      const float *pair = weights + 2 * p * next;
      maker.make(loadFloats(pair), loadFloats(pair + next), digits[p]);
    }
    const int16_t *pair = levels;
    for (int64_t r = 0; r < rows; ++r, sums += kDigits * kLanes) {
      Integers sum[kDigits];
#pragma GCC unroll 2
      for (int d = 0; d < kDigits; ++d) sum[d] = load(sums + d * kLanes);
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p, pair += kPairLevels) {
        const Integers n = kLines ? load(pair) : everywhere(pairAt(pair));
#pragma GCC unroll 2
        for (int d = 0; d < kDigits; ++d) sum[d] = addPairs(sum[d], n, digits[p][d]);
      }
#pragma GCC unroll 2
      for (int d = 0; d < kDigits; ++d) save(sums + d * kLanes, sum[d]);
    }
    weights += kLines ? distance : kLanes;
  }
  return maker.fits();
}

template <int kDigits>
void joinInColumns(double factor, int64_t count, const int32_t *sums, bool fresh, double *to) {
  for (int64_t i = 0; i < count; ++i, sums += kDigits * kLanes, to += kLanes) {
    Accumulators<kDigits, 1> all;
#pragma GCC unroll 2
    for (int d = 0; d < kDigits; ++d) all.of[0][d] = load(sums + d * kLanes);
    all.store({factor, to, fresh, nullptr, 0, 0.0f});
  }
}

template <int kDigits>
void joinInLines(double factor, int64_t count, const int32_t *sums, bool fresh, double *to) {
  for (int64_t i = 0; i < count; ++i, sums += kDigits * kLanes) {
    double sum = double(sumOfLanes(load(sums)));
    if (kDigits == 2) sum += factor * double(sumOfLanes(load(sums + kLanes)));
    to[i] = fresh ? sum : to[i] + sum;
  }
}

template <bool kLines>
void join(const IntegerDigits &by, int64_t count, const int32_t *sums, bool fresh, double *to) {
  if constexpr (kLines) {
    (by.count() == 1 ? joinInLines<1> : joinInLines<2>)(by.factor(), count, sums, fresh, to);
  } else {
    (by.count() == 1 ? joinInColumns<1> : joinInColumns<2>)(by.factor(), count, sums, fresh, to);
  }
}

#else

constexpr int kLanes = 4;
constexpr int kRows = 4;

/// Four numbers of each in turns.
void zip(const int16_t *first, const int16_t *second, int16_t *to) {
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = first[i];
    to[2 * i + 1] = second[i];
  }
}

/// The digit of a weight.

int32_t digitOf(const IntegerDigits &by, float weight, int d) {
  const int32_t v = integerOf(by.integers, weight);
  if (by.count() == 1) return v;
  const int32_t upper = (v + (1 << (by.lowBits() - 1))) >> by.lowBits();
  return d == 1 ? upper : v - upper * (1 << by.lowBits());
}

void storeSum(const DigitSums &to, int r, int l, double sum) {
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
           const DigitSums &to) {
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

template <Cut>
void makeDigits(const IntegerDigits &by, int64_t pairs, const float *weights, int64_t row,
                int16_t *digits) {
  for (int64_t k = 0; k < pairs; ++k, weights += 2 * row) {
    for (int d = 0; d < by.count(); ++d, digits += 2 * kLanes) {
      for (int i = 0; i < 2 * kLanes; ++i)
        digits[i] = static_cast<int16_t>(digitOf(by, weights[i % 2 * row + i / 2], d));
    }
  }
}

template <Cut, bool kLines>
bool add(const IntegerDigits &by, int64_t rows, int64_t count, const float *weights,
         int64_t distance, const int16_t *levels, int32_t *sums) {
  constexpr int kStep = 2 * kPairs * (kLines ? kLanes : 1);
  for (int64_t i = 0; i < count; ++i, sums += rows * by.count() * kLanes) {
    for (int k = 0; k < kStep; ++k) {
      for (int l = 0; l < (kLines ? 1 : kLanes); ++l) {
        // Level k of the interleaved ones is the input `at` of its line, and adds to the lane `to`.
        const int block = k / (2 * kLanes) * 2 * kLanes;
        const int to = kLines ? (k - block) / 2 : l;
        const int at = block + to + k % 2 * kLanes;
        const float w =
            kLines ? weights[i * distance + at] : weights[k * distance + i * kLanes + l];
        for (int d = 0; d < by.count(); ++d) {
          const int32_t digit = digitOf(by, w, d);
          for (int64_t r = 0; r < rows; ++r)
            sums[(r * by.count() + d) * kLanes + to] += digit * levels[r * kStep + k];
        }
      }
    }
  }
  return true;
}

template <bool kLines>
void join(const IntegerDigits &by, int64_t count, const int32_t *sums, bool fresh, double *to) {
  for (int64_t i = 0; i < count; ++i, sums += by.count() * kLanes) {
    double lanes[kLanes];
    double total = 0.0;
    for (int l = 0; l < kLanes; ++l) {
      lanes[l] = sums[l];
      if (by.count() == 2) lanes[l] += by.factor() * sums[kLanes + l];
      total += lanes[l];
    }
    if (kLines) {
      to[i] = fresh ? total : to[i] + total;
    } else {
      for (int l = 0; l < kLanes; ++l) {
        double &sum = to[i * kLanes + l];
        sum = fresh ? lanes[l] : sum + lanes[l];
      }
    }
  }
}

#endif

void interleave(const int16_t *levels, int64_t size, int16_t *to) {
  for (int64_t k = 0; k < 2 * kPairs * kLanes; k += 2 * kLanes, to += 2 * kLanes) {
    int16_t rest[2 * kLanes];
    const int16_t *from = levels + k;
    if (k + 2 * kLanes > size) {
      for (int i = 0; i < 2 * kLanes; ++i) rest[i] = k + i < size ? from[i] : int16_t{0};
      from = rest;
    }
    for (int i = 0; i < kLanes; i += 4) zip(from + i, from + kLanes + i, to + 2 * i);
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
  if constexpr (R > 1) listKernels<R - 1>(kernel);
}

template <Cut kCut>
void listCut(IntegerKernel &kernel) {
  constexpr auto kIndex = static_cast<int>(kCut);
  kernel.makeDigits[kIndex] = makeDigits<kCut>;
  kernel.addColumns[kIndex] = add<kCut, false>;
  kernel.addLines[kIndex] = add<kCut, true>;
}

IntegerKernel makeKernel() {
  IntegerKernel kernel{};
  kernel.lanes = kLanes;
  kernel.maxRows = kRows;
  listKernels<kRows>(kernel);
  listCut<Cut::Whole>(kernel);
  listCut<Cut::Low16>(kernel);
  listCut<Cut::Low12>(kernel);
  kernel.joinColumns = join<false>;
  kernel.joinLines = join<true>;
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
