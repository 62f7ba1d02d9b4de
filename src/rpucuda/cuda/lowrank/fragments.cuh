#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/core/launch.cuh"
#include "lowrank/codes.h"

// Code shared by the fused kernels of low-rank updates: pieces of matrices in registers, in the
// layout of the tensor cores. A warp multiplies tiles of 16 rows; a lane has rows g and g + 8, and
// t is its place in the row. Lanes read a tile of 32 columns in 16-byte pieces: lane t has columns
// 8 t to 8 t + 7, used as columns 2 t and 2 t + 1 of four tiles of 8 columns. Column j of tile i is
// therefore column columnOf(j, i) of the 32; both factors of a product are permuted alike, and
// results are written in 16-byte pieces.

namespace pulsora::lowrank {

constexpr int kTileRows = 16;
constexpr int kChunk = 32;  // columns per step of a warp, in 16 bits

__device__ inline int columnOf(int j, int i) { return (j >> 1) * 8 + i * 2 + (j & 1); }

/// Two numbers of 16 bits in a word, and their products.
template <class T>
struct Pair;
template <>
struct Pair<Half> {
  static __device__ inline uint32_t pack(float low, float high) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&both);
  }
  static __device__ inline float2 unpack(uint32_t both) {
    return __half22float2(*reinterpret_cast<const __half2 *>(&both));
  }
  static __device__ inline void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    multiplyHalf(d, a0, a1, b0);
    multiplyHalf(d, a2, a3, b1);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
  }

 private:
  /// The product of depth 8, the only one of compute capability 7.5.
  static __device__ inline void multiplyHalf(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
  }
};
template <>
struct Pair<BFloat16> {
  static __device__ inline uint32_t pack(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&both);
  }
  static __device__ inline float2 unpack(uint32_t both) {
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xFFFF0000U));
  }
  static __device__ inline void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    __trap();  // never launched: see multiplies()
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
  }
};

/// The transposed tile of 8 x 8 numbers of 16 bits.
__device__ inline uint32_t transposed(uint32_t tile) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(tile));
  return result;
}

/// A power of two that scales numbers of magnitude `largest` to [2^14, 2^15), where the sum of two
/// halves keeps 22 bits, and its inverse. 1 for types with the range of floats.
struct PowerOfTwo {
  float up = 1.0f;
  float down = 1.0f;
};
template <class T>
__device__ inline PowerOfTwo rangeOf(float largest) {
  if constexpr (!std::is_same_v<T, Half>) {
    return {};
  } else {
    const uint32_t exponent = __float_as_uint(largest) >> 23;
    const uint32_t up = exponent == 255U ? 127U : min(268U - exponent, 253U);
    return {__uint_as_float(up << 23), __uint_as_float((254U - up) << 23)};
  }
}

/// Two floats as the sum of two pairs of 16 bits.
template <class T>
__device__ inline void splitPair(float2 value, uint32_t &high, uint32_t &low) {
  high = Pair<T>::pack(value.x, value.y);
  const float2 rounded = Pair<T>::unpack(high);
  low = Pair<T>::pack(value.x - rounded.x, value.y - rounded.y);
}

/// 16 bytes that are read once.
__device__ inline uint4 readOnce(const void *from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

/// Writes 16 bytes; with `streams` past the caches, which is faster if results do not fit into the
/// caches.
__device__ inline void write(void *to, uint4 value, bool streams) {
  if (streams) {
    __stcs(static_cast<uint4 *>(to), value);
  } else {
    *static_cast<uint4 *>(to) = value;
  }
}

/// A factor [K, N] of a product in kernels, of any strides.
template <class T>
struct Factor {
  const T *data;
  int64_t rowStride;
  int64_t colStride;
  int rows;
  int cols;
  bool inPairs;  // neighbours in a row can be read as one word

  explicit Factor(ConstAnyMatrix m)
      : data(static_cast<const T *>(m.data)),
        rowStride(m.rowStride),
        colStride(m.colStride),
        rows(static_cast<int>(m.rows)),
        cols(static_cast<int>(m.cols)),
        inPairs(m.colStride == 1 && m.cols % 2 == 0 && m.rowStride % 2 == 0 &&
                reinterpret_cast<uintptr_t>(m.data) % (2 * sizeof(T)) == 0) {}

  /// The element, or 0 outside the matrix.
  __device__ T at(int row, int col) const {
    if (row >= rows || col >= cols) return T{};
    return data[row * rowStride + col * colStride];
  }
  /// Elements (row, col) and (row, col + 1) of 16 bits, 0 outside the matrix.
  __device__ uint32_t pairAt(int row, int col) const {
    if (inPairs) {
      if (row >= rows || col >= cols) return 0;
      return __ldg(reinterpret_cast<const uint32_t *>(data + row * rowStride + col));
    }
    return at(row, col).bits | static_cast<uint32_t>(at(row, col + 1).bits) << 16;
  }
};

/// The codes of columns col and col + 1 for a row of the batch: 1 without codes, 0 beyond N.
template <class T>
__device__ inline float2 codesAt(const CodeReader<T> &codes, int row, int col, int n) {
  if (!codes.data) return make_float2(1.0f, 1.0f);
  const T *of = codes.row(row);
  return make_float2(col < n ? widen(of[col * codes.colStride]) : 0.0f,
                     col + 1 < n ? widen(of[(col + 1) * codes.colStride]) : 0.0f);
}

/// Sums of h over the warps along the columns, for the rows that a warp owns.
template <int kTiles, int kAlong, int kGroups>
__device__ inline void sumAlong(const float (&h)[kTiles][4], float2 (&sum)[kTiles][2],
                                float *shared, int along, int group, int g, int t) {
  constexpr int kN = 8 * kTiles;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float *to = shared + ((along * kGroups + group) * kTileRows + g + 8 * r) * kN + n * 8 + 2 * t;
      *reinterpret_cast<float2 *>(to) = make_float2(h[n][2 * r], h[n][2 * r + 1]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float2 total = {0.0f, 0.0f};
#pragma unroll
      for (int w = 0; w < kAlong; ++w) {
        const float *from =
            shared + ((w * kGroups + group) * kTileRows + g + 8 * r) * kN + n * 8 + 2 * t;
        const float2 part = *reinterpret_cast<const float2 *>(from);
        total.x += part.x;
        total.y += part.y;
      }
      sum[n][r] = total;
    }
  }
}

/// Properties of a GPU, queried once.
struct GpuFacts {
  int processors = 0;
  int64_t cacheBytes = 0;
  int capability = 0;  // 90: compute capability 9.0
};
GpuFacts factsOf(int device);

/// Whether the tensor cores of a GPU multiply numbers of a type (of single precision, as several
/// tf32 terms). The kernels of other types are compiled for such a GPU, but must not be launched.
inline bool multiplies(const GpuFacts &gpu, ElementType type) {
  return gpu.capability >= (type == ElementType::Float16 ? 75 : 80);
}

/// Whether rows can be read and written in pieces of 16 bytes.
inline bool hasPieces(ConstAnyMatrix m) {
  const int64_t piece = 16 / elementBytes(m.type);
  return m.colStride == 1 && m.cols % piece == 0 && (m.rows <= 1 || m.rowStride % piece == 0) &&
         reinterpret_cast<uintptr_t>(m.data) % 16 == 0;
}

/// Whether sizes fit the 32-bit numbers that kernels count with.
inline bool isCountable(int64_t size) { return size < (int64_t{1} << 30); }

}  // namespace pulsora::lowrank
