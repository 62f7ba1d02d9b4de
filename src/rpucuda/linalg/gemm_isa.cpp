#include "linalg/gemm_kernel.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

// Compiled once per instruction set. Everything here is in an anonymous namespace and nothing comes
// from the standard library: an inline function shared between these object files would be merged
// by the linker, and an old machine could end up executing the copy made for a new one.

namespace pulsora {
namespace {

#if defined(__AVX512F__)

using Vector = __m512;
constexpr int kLanes = 16;
constexpr int kRows = 14;  // 14 x 2 accumulators + 2 of b + 1 of a = 31 of 32 registers
Vector load(const float *p) { return _mm512_loadu_ps(p); }
void save(float *p, Vector v) { _mm512_storeu_ps(p, v); }
Vector broadcast(float s) { return _mm512_set1_ps(s); }
Vector multiplyAdd(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }

Vector loadQuads(const float *p, int64_t stride) {
  Vector v = _mm512_castps128_ps512(_mm_loadu_ps(p));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(p + stride), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 2 * stride), 2);
  return _mm512_insertf32x4(v, _mm_loadu_ps(p + 3 * stride), 3);
}
// With a full mask these are plain unpacks. (In some g++ the unmasked forms warn of uninitialised
// values.)
constexpr __mmask16 kAll = 0xFFFF;
Vector unpackLow(Vector a, Vector b) { return _mm512_maskz_unpacklo_ps(kAll, a, b); }
Vector unpackHigh(Vector a, Vector b) { return _mm512_maskz_unpackhi_ps(kAll, a, b); }
Vector lowHalves(Vector a, Vector b) { return _mm512_shuffle_ps(a, b, 0x44); }
Vector highHalves(Vector a, Vector b) { return _mm512_shuffle_ps(a, b, 0xEE); }

#elif defined(__AVX2__) && defined(__FMA__)

using Vector = __m256;
constexpr int kLanes = 8;
constexpr int kRows = 6;  // 6 x 2 accumulators + 2 of b + 1 of a = 15 of 16 registers
Vector load(const float *p) { return _mm256_loadu_ps(p); }
void save(float *p, Vector v) { _mm256_storeu_ps(p, v); }
Vector broadcast(float s) { return _mm256_set1_ps(s); }
Vector multiplyAdd(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }

Vector loadQuads(const float *p, int64_t stride) {
  const Vector v = _mm256_castps128_ps256(_mm_loadu_ps(p));
  return _mm256_insertf128_ps(v, _mm_loadu_ps(p + stride), 1);
}
Vector unpackLow(Vector a, Vector b) { return _mm256_unpacklo_ps(a, b); }
Vector unpackHigh(Vector a, Vector b) { return _mm256_unpackhi_ps(a, b); }
Vector lowHalves(Vector a, Vector b) { return _mm256_shuffle_ps(a, b, 0x44); }
Vector highHalves(Vector a, Vector b) { return _mm256_shuffle_ps(a, b, 0xEE); }

#else

// Without a fused multiply-add instruction each fma is a call into the C library, which is exact
// and takes nanoseconds; a product and a sum in vectors would be quick and have other bits.
using Vector = float;
constexpr int kLanes = 1;
constexpr int kRows = 4;
Vector load(const float *p) { return *p; }
void save(float *p, Vector v) { *p = v; }
Vector broadcast(float s) { return s; }
Vector multiplyAdd(Vector a, Vector b, Vector c) { return __builtin_fmaf(a, b, c); }

#endif

template <int R, int V>
void micro(int64_t depth, const float *a, int64_t aRow, int64_t aCol, const float *b, int64_t bRow,
           bool fresh, float *acc, int64_t accRow) {
  Vector sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      sum[r][v] = fresh ? broadcast(0.0f) : load(acc + r * accRow + v * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vector bk[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) bk[v] = load(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vector ark = broadcast(a[r * aRow]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[r][v] = multiplyAdd(ark, bk[v], sum[r][v]);
    }
    a += aCol;
    b += bRow;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) save(acc + r * accRow + v * kLanes, sum[r][v]);
  }
}

#if defined(__AVX2__) && defined(__FMA__)

constexpr int kTile = kLanes;

// dst(i, j) = src(j, i) for a kLanes x kLanes tile, four rows of dst at a time. A vector is loaded
// from kLanes / 4 rows of src, four floats of each (`loadQuads`), so that only 4 x 4 transpositions
// within 128 bits are left to do.
void transposeTile(float *dst, int64_t dstRow, const float *src, int64_t srcRow) {
  for (int i = 0; i < kTile; i += 4) {
    const Vector row0 = loadQuads(src + i, 4 * srcRow);
    const Vector row1 = loadQuads(src + i + srcRow, 4 * srcRow);
    const Vector row2 = loadQuads(src + i + 2 * srcRow, 4 * srcRow);
    const Vector row3 = loadQuads(src + i + 3 * srcRow, 4 * srcRow);
    const Vector low01 = unpackLow(row0, row1);
    const Vector high01 = unpackHigh(row0, row1);
    const Vector low23 = unpackLow(row2, row3);
    const Vector high23 = unpackHigh(row2, row3);
    float *out = dst + i * dstRow;
    save(out, lowHalves(low01, low23));
    save(out + dstRow, highHalves(low01, low23));
    save(out + 2 * dstRow, lowHalves(high01, high23));
    save(out + 3 * dstRow, highHalves(high01, high23));
  }
}

#else

constexpr int kTile = 4;

void transposeTile(float *dst, int64_t dstRow, const float *src, int64_t srcRow) {
  for (int i = 0; i < kTile; ++i) {
    for (int j = 0; j < kTile; ++j) dst[i * dstRow + j] = src[j * srcRow + i];
  }
}

#endif

void copyElements(float *dst, int64_t dstRow, const float *src, int64_t srcRow, int64_t srcCol,
                  int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) dst[i * dstRow + j] = src[i * srcRow + j * srcCol];
  }
}

void copyRows(float *dst, int64_t dstRow, const float *src, int64_t srcRow, int64_t rows,
              int64_t cols) {
  const int64_t whole = cols / kLanes * kLanes;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < whole; j += kLanes)
      save(dst + i * dstRow + j, load(src + i * srcRow + j));
  }
  copyElements(dst + whole, dstRow, src + whole, srcRow, 1, rows, cols - whole);
}

void copy(float *dst, int64_t dstRow, const float *src, int64_t srcRow, int64_t srcCol,
          int64_t rows, int64_t cols) {
  if (srcCol == 1) return copyRows(dst, dstRow, src, srcRow, rows, cols);
  if (srcRow != 1) return copyElements(dst, dstRow, src, srcRow, srcCol, rows, cols);
  const int64_t wholeRows = rows / kTile * kTile;
  const int64_t wholeCols = cols / kTile * kTile;
  for (int64_t j = 0; j < wholeCols; j += kTile) {
    for (int64_t i = 0; i < wholeRows; i += kTile) {
      transposeTile(dst + i * dstRow + j, dstRow, src + i + j * srcCol, srcCol);
    }
  }
  copyElements(dst + wholeCols, dstRow, src + wholeCols * srcCol, 1, srcCol, wholeRows,
               cols - wholeCols);
  copyElements(dst + wholeRows * dstRow, dstRow, src + wholeRows, 1, srcCol, rows - wholeRows,
               cols);
}

template <bool kReadsC>
void storeLine(const float *acc, int64_t accStride, int64_t size, float alpha, float beta, float *c,
               int64_t cStride) {
  for (int64_t j = 0; j < size; ++j) {
    float &out = c[j * cStride];
    out = kReadsC ? __builtin_fmaf(alpha, acc[j * accStride], beta * out)
                  : alpha * acc[j * accStride];
  }
}

// Literal unit strides, where they apply, let the compiler vectorise the loop.
template <bool kReadsC>
void storeLines(const float *acc, int64_t accRow, int64_t rows, int64_t cols, float alpha,
                float beta, float *c, int64_t cRow, int64_t cCol) {
  if (cCol == 1) {
    for (int64_t i = 0; i < rows; ++i) {
      storeLine<kReadsC>(acc + i * accRow, 1, cols, alpha, beta, c + i * cRow, 1);
    }
  } else if (cRow == 1) {
    for (int64_t j = 0; j < cols; ++j) {
      storeLine<kReadsC>(acc + j, accRow, rows, alpha, beta, c + j * cCol, 1);
    }
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      storeLine<kReadsC>(acc + i * accRow, 1, cols, alpha, beta, c + i * cRow, cCol);
    }
  }
}

void store(const float *acc, int64_t accRow, int64_t rows, int64_t cols, float alpha, float beta,
           float *c, int64_t cRow, int64_t cCol) {
  const auto lines = beta == 0.0f ? storeLines<false> : storeLines<true>;
  lines(acc, accRow, rows, cols, alpha, beta, c, cRow, cCol);
}

template <int R>
void listKernels(GemmKernel &kernel) {
  kernel.micro[0][R - 1] = micro<R, 1>;
  kernel.micro[1][R - 1] = micro<R, 2>;
  if constexpr (R > 1) listKernels<R - 1>(kernel);
}

GemmKernel makeKernel() {
  GemmKernel kernel{};
  kernel.lanes = kLanes;
  kernel.maxRows = kRows;
  listKernels<kRows>(kernel);
  kernel.copy = copy;
  kernel.store = store;
  return kernel;
}

}  // namespace

template <>
const GemmKernel &gemmKernel<Isa::PULSORA_ISA>() {
  static const GemmKernel kernel = makeKernel();
  return kernel;
}

}  // namespace pulsora
