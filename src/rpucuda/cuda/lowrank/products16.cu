#include "core/backend.h"
#include "core/buffer.h"
#include "cuda/core/launch.cuh"
#include "cuda/linalg/cublas.cuh"
#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/updates.cuh"
#include "lowrank/codes.h"

// All gradients in 16 bits for cases too large for the registers of backward16.cu: five products of
// cuBLAS on tensor cores, in single precision inside, and three kernels between them. The
// intermediate matrices h = x v and g = dy u with their gates are never rounded to 16 bits: each is
// a factor of the next products as the sum of two matrices of 16 bits, [high | low], scaled by a
// power of two. Products with few results are made in parts of their sums, which keep more
// processors busy; the kernel after a product adds its parts in a fixed order.

namespace pulsora::lowrank {
namespace {

constexpr int kThreads = 256;

template <class T>
constexpr cudaDataType_t typeOf() {
  if constexpr (std::is_same_v<T, Half>) return CUDA_R_16F;
  if constexpr (std::is_same_v<T, BFloat16>) return CUDA_R_16BF;
  return CUDA_R_32F;
}

/// Whether cuBLAS takes a matrix of these strides.
template <class T>
bool fits(ConstAnyMatrix m) {
  return !m.data || BlasOperand::of(m.as<T>()).fits();
}

/// Into how many parts a sum of so many terms is cut, for results of rows x few columns.
int64_t partsOf(const GpuFacts &gpu, int64_t rows, int64_t terms) {
  constexpr int64_t kTile = 64;  // rows of a block of cuBLAS's kernels for few columns
  constexpr int64_t kMost = 8, kLeastTerms = 256, kPiece = 8;  // elements of 16 bytes
  const int64_t tiles = (rows + kTile - 1) / kTile;
  int64_t parts = 1;
  while (parts < kMost && tiles * parts < gpu.processors && terms % (2 * parts * kPiece) == 0 &&
         terms >= 2 * parts * kLeastTerms)
    parts *= 2;
  return parts;
}

/// C = A B, or alpha A B with the two factors of a product (alpha, and 0) in the GPU's memory. With
/// several parts, C is that of the first part of the sums, and the others follow it without gaps.
template <class T, class C>
void multiply(const Context &context, const float *factors, MatrixView<const T> a,
              MatrixView<const T> b, MatrixView<C> c, int64_t parts = 1) {
  if (BlasOperand::of(c).transposed) transposeProduct(a, b, c);
  const BlasOperand ofA = BlasOperand::of(a), ofB = BlasOperand::of(b), ofC = BlasOperand::of(c);
  const int64_t terms = a.cols / parts;
  Cublas::of(context).run(context, [&](cublasHandle_t handle) {
    // The handle's own mode is for single precision. Partial sums stay in single precision.
    checkCublas(cublasSetMathMode(handle, static_cast<cublasMath_t>(
                                              CUBLAS_DEFAULT_MATH |
                                              CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
                "cublasSetMathMode");
    checkCublas(cublasSetPointerMode(
                    handle, factors ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST),
                "cublasSetPointerMode");
    constexpr float kOne = 1.0f, kNone = 0.0f;
    const cublasStatus_t status = cublasGemmStridedBatchedEx(
        handle, operation(ofB), operation(ofA), static_cast<int>(c.cols), static_cast<int>(c.rows),
        static_cast<int>(terms), factors ? factors : &kOne, b.data, typeOf<T>(),
        static_cast<int>(ofB.lead), terms * b.rowStride, a.data, typeOf<T>(),
        static_cast<int>(ofA.lead), terms * a.colStride, factors ? factors + 1 : &kNone, c.data,
        typeOf<C>(), static_cast<int>(ofC.lead), c.size(), static_cast<int>(parts),
        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST);
    cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH);
    checkCublas(status, "cublasGemmStridedBatchedEx");
  });
}

/// The parts [rows, cols] of a product, one after another.
struct Parts {
  float *data = nullptr;  // null if not wanted
  int count = 0;
  int64_t size = 0;

  /// Their sum at element i.
  __device__ float sum(int64_t i) const {
    float sum = data[i];
    for (int part = 1; part < count; ++part) sum += data[part * size + i];
    return sum;
  }
};

/// h (in place 0 of the arrays) and g (in place 1), [M, N] without gaps.
constexpr int kOfH = 0, kOfG = 1;

template <class T>
struct Gating {
  Parts from[2];  // the gated values become the first part
  MatrixView<float> dcodes;
  CodeReader<T> codes;
  float scale;
  unsigned size, n;
  float *largest;  // [2, blocks]: the largest gated element that a block has seen
};

__device__ inline void writeLargest(float *to, float largest) {
  __shared__ float ofWarps[kThreads / 32];
#pragma unroll
  for (int other = 16; other > 0; other /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, other));
  if (threadIdx.x % 32 == 0) ofWarps[threadIdx.x / 32] = largest;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (const float each : ofWarps) largest = fmaxf(largest, each);
    *to = largest;
  }
  __syncthreads();
}

/// Computes the gradient of the codes, then gates h and g, and finds the largest element of each.
template <class T>
__global__ void __launch_bounds__(kThreads) gateKernel(const __grid_constant__ Gating<T> p) {
  awaitEarlier();
  float largest[2] = {};
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < p.size; i += gridDim.x * kThreads) {
    const unsigned row = i / p.n, col = i % p.n;
    const float gate = p.codes.at(row, col);
    float values[2] = {};
    for (int which = 0; which < 2; ++which) {
      if (!p.from[which].data) continue;
      values[which] = p.from[which].sum(i);
      const float gated = values[which] * gate;
      p.from[which].data[i] = gated;
      largest[which] = fmaxf(largest[which], fabsf(gated));
    }
    if (p.dcodes.data) p.dcodes(row, col) = p.scale * values[kOfH] * values[kOfG];
  }
  for (int which = 0; which < 2; ++which)
    writeLargest(p.largest + which * gridDim.x + blockIdx.x, largest[which]);
}

template <class T>
struct Halving {
  const float *from[2];  // [M, N], gated
  T *to[2];              // [M, 2 N]: [high | low]; null if not wanted
  MatrixView<const T> v;
  T *twice;              // [2 N, K1]: [v^T; v^T]; null if not wanted
  const float *largest;  // [2, blocks]
  int blocks;            // of the gating kernel
  float *factors;        // [2, 2]: those of products with h, and with g
  float scale;
  unsigned size, n;
};

/// Cuts gated values into halves, and stacks v twice. Blocks of y coordinate 2 stack.
template <class T>
__global__ void __launch_bounds__(kThreads) halveKernel(const __grid_constant__ Halving<T> p) {
  awaitEarlier();
  const unsigned which = blockIdx.y, stride = gridDim.x * kThreads;
  const unsigned first = blockIdx.x * kThreads + threadIdx.x;
  if (which == 2) {
    if (!p.twice) return;
    const auto ofV = static_cast<unsigned>(p.v.size()), rows = static_cast<unsigned>(p.v.rows);
    for (unsigned i = first; i < ofV; i += stride)
      p.twice[i] = p.twice[ofV + i] = p.v(i % rows, i / rows);
    return;
  }
  if (!p.to[which]) return;
  float largest = 0.0f;
  if constexpr (std::is_same_v<T, Half>) {  // other types need no scale
    __shared__ float ofAll;
    for (int i = static_cast<int>(threadIdx.x); i < p.blocks; i += kThreads)
      largest = fmaxf(largest, p.largest[static_cast<int>(which) * p.blocks + i]);
    writeLargest(&ofAll, largest);
    largest = ofAll;
  }
  const PowerOfTwo range = rangeOf<T>(largest);
  if (first == 0) {
    p.factors[2 * which] = p.scale * range.down;
    p.factors[2 * which + 1] = 0.0f;
  }
  for (unsigned i = first; i < p.size; i += stride) {
    const unsigned row = i / p.n, col = i % p.n;
    const float value = p.from[which][i] * range.up;
    const T high = narrow<T>(value);
    T *const to = p.to[which] + int64_t{2} * row * p.n + col;
    to[0] = high;
    to[p.n] = narrow<T>(value - widen(high));
  }
}

template <class T>
struct Folding {
  Parts from[2];        // [K, 2 N]
  MatrixView<T> to[2];  // [K, N]
};

/// to = high + low of all parts, rounded once.
template <class T>
__global__ void __launch_bounds__(kThreads) foldKernel(const __grid_constant__ Folding<T> p) {
  awaitEarlier();
  const Parts from = p.from[blockIdx.y];
  const MatrixView<T> to = p.to[blockIdx.y];
  if (!from.data) return;
  const auto size = static_cast<unsigned>(to.size()), n = static_cast<unsigned>(to.cols);
  for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < size; i += gridDim.x * kThreads) {
    const unsigned row = i / n, col = i % n;
    const int64_t high = int64_t{2} * row * n + col;
    to(row, col) = narrow<T>(from.sum(high) + from.sum(high + n));
  }
}

/// A product in parts, and the memory of these.
class PartsOfProduct {
 public:
  template <class T>
  Parts of(const Context &context, const float *factors, MatrixView<const T> a,
           MatrixView<const T> b) {
    const int64_t parts = partsOf(factsOf(context.device), a.rows, a.cols);
    const int64_t size = a.rows * b.cols;
    storage_.reserve(context, parts * size);
    multiply(context, factors, a, b, rowMajor(storage_.data(), a.rows, b.cols), parts);
    return {storage_.data(), static_cast<int>(parts), size};
  }

 private:
  Buffer<float> storage_;
};

}  // namespace

template <class T>
bool products16(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                const GatedGradients &gradients) {
  const int64_t m = update.x.rows, k1 = update.x.cols, k2 = dy.cols, n = update.v.cols;
  const bool isThere = m > 0 && n > 0 && k1 > 0 && k2 > 0;
  const int64_t most = std::max({m, k1, k2});
  if (!isThere || context.gpuProducts == GpuProducts::Reproducible || !fits<T>(update.x) ||
      !fits<T>(dy) || !fits<T>(update.v) || !fits<T>(update.u) || !fits<T>(gradients.x) ||
      !isCountable(most) || !isCountable(2 * most * n))
    return false;
  const CudaScope scope(context.device);
  const auto x = update.x.as<T>(), v = update.v.as<T>(), u = update.u.as<T>(), d = dy.as<T>();
  const bool wantsCodes = gradients.codes.data != nullptr, wantsX = gradients.x.data != nullptr;
  const bool wantsV = gradients.v.data != nullptr, wantsU = gradients.u.data != nullptr;
  PartsOfProduct ofH, ofG, ofV, ofU;
  constexpr unsigned kMostBlocks = 512;
  const unsigned blocks = std::min(gridFor(m * n, kThreads), kMostBlocks);
  Buffer<float> facts(context, 2 * int64_t{blocks} + 4);
  Gating<T> gating{{},
                   gradients.codes,
                   CodeReader<T>(update.codes),
                   update.scale,
                   static_cast<unsigned>(m * n),
                   static_cast<unsigned>(n),
                   facts.data()};
  if (wantsCodes || wantsU) gating.from[kOfH] = ofH.of<T>(context, nullptr, x, v);
  if (wantsCodes || wantsX || wantsV) gating.from[kOfG] = ofG.of<T>(context, nullptr, d, u);
  launch(context.stream, gateKernel<T>, blocks, kThreads, 0, gating);
  if (!wantsX && !wantsV && !wantsU) return true;
  float *const factors = facts.data() + 2 * int64_t{blocks};
  Buffer<T> halvesOfH(context, wantsU ? 2 * m * n : 0);
  Buffer<T> halvesOfG(context, wantsX || wantsV ? 2 * m * n : 0);
  Buffer<T> stacked(context, wantsX ? 2 * v.size() : 0);
  launch(context.stream, halveKernel<T>, dim3(blocks, 3), kThreads, 0,
         Halving<T>{{gating.from[kOfH].data, gating.from[kOfG].data},
                    {halvesOfH.data(), halvesOfG.data()},
                    v,
                    stacked.data(),
                    gating.largest,
                    static_cast<int>(blocks),
                    factors,
                    update.scale,
                    gating.size,
                    gating.n});
  const float *const withH = factors + 2 * kOfH, *const withG = factors + 2 * kOfG;
  const MatrixView<const T> h = rowMajor<const T>(halvesOfH.data(), m, 2 * n),
                            g = rowMajor<const T>(halvesOfG.data(), m, 2 * n),
                            twice = rowMajor<const T>(stacked.data(), 2 * n, k1);
  if (wantsX) multiply<T>(context, withG, g, twice, gradients.x.as<T>());
  Folding<T> folding{};
  if (wantsV) folding.from[0] = ofV.of<T>(context, withG, x.transposed(), g);
  if (wantsU) folding.from[1] = ofU.of<T>(context, withH, d.transposed(), h);
  if (!wantsV && !wantsU) return true;
  if (wantsV) folding.to[0] = gradients.v.as<T>();
  if (wantsU) folding.to[1] = gradients.u.as<T>();
  const int64_t largest = std::max(folding.to[0].size(), folding.to[1].size());
  launch(context.stream, foldKernel<T>, dim3(gridFor(largest, kThreads), 2), kThreads, 0, folding);
  return true;
}

template bool products16<Half>(const Context &, const GatedLowRank &, ConstAnyMatrix,
                               const GatedGradients &);
template bool products16<BFloat16>(const Context &, const GatedLowRank &, ConstAnyMatrix,
                                   const GatedGradients &);

}  // namespace pulsora::lowrank
