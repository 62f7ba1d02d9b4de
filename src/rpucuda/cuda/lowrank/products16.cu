#include "core/backend.h"
#include "core/buffer.h"
#include "cuda/core/for_each.cuh"
#include "cuda/linalg/cublas.cuh"
#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/updates.cuh"
#include "lowrank/codes.h"

// All gradients in 16 bits for cases too large for the registers of backward16.cu: five products of
// cuBLAS on tensor cores, in single precision inside. The intermediate matrices h = x v and g = dy
// u with their gates are never rounded to 16 bits: each is a factor of the next products as the sum
// of two matrices of 16 bits, [high | low], scaled by a power of two.

namespace pulsora::lowrank {
namespace {

constexpr int kThreads = 256;

/// Numbers passed between kernels and products in the GPU's memory.
struct Shared {
  float ofG[2];  // factors of products with g for cuBLAS: alpha, and beta, which is 0
  float ofH[2];
  float largestG;
  float largestH;
};

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

/// C = A B, or alpha A B with the two factors of a product in the GPU's memory.
template <class T, class C>
void multiply(const Context &context, const float *factors, MatrixView<const T> a,
              MatrixView<const T> b, MatrixView<C> c) {
  if (BlasOperand::of(c).transposed) transposeProduct(a, b, c);
  const BlasOperand ofA = BlasOperand::of(a), ofB = BlasOperand::of(b), ofC = BlasOperand::of(c);
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
    const cublasStatus_t status = cublasGemmEx(
        handle, operation(ofB), operation(ofA), static_cast<int>(c.cols), static_cast<int>(c.rows),
        static_cast<int>(a.cols), factors ? factors : &kOne, b.data, typeOf<T>(),
        static_cast<int>(ofB.lead), a.data, typeOf<T>(), static_cast<int>(ofA.lead),
        factors ? factors + 1 : &kNone, c.data, typeOf<C>(), static_cast<int>(ofC.lead),
        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST);
    cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH);
    checkCublas(status, "cublasGemmEx");
  });
}

template <class T>
struct Gating {
  MatrixView<float> h, g;  // [M, N]; here and below, without data if not wanted
  MatrixView<float> dcodes;
  CodeReader<T> codes;
  float scale;
  int64_t rows, n;
  Shared *shared;
};

__device__ inline void raise(float *to, float largest) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, other));
  // Bits of non-negative floats have the order of the floats.
  if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<int *>(to), __float_as_int(largest));
}

/// Computes the gradient of the codes, then gates h and g in place, and finds the largest element
/// of each.
template <class T>
__global__ void __launch_bounds__(kThreads) gateKernel(const __grid_constant__ Gating<T> p) {
  awaitEarlier();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  float largestH = 0.0f, largestG = 0.0f;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < p.rows * p.n;
       i += stride) {
    const int64_t row = i / p.n, col = i % p.n;
    const float gate = p.codes.at(row, col);
    const float h = p.h.data ? p.h(row, col) : 0.0f, g = p.g.data ? p.g(row, col) : 0.0f;
    if (p.dcodes.data) p.dcodes(row, col) = p.scale * h * g;
    if (p.h.data) p.h(row, col) = h * gate;
    if (p.g.data) p.g(row, col) = g * gate;
    largestH = fmaxf(largestH, fabsf(h * gate));
    largestG = fmaxf(largestG, fabsf(g * gate));
  }
  raise(&p.shared->largestH, largestH);
  raise(&p.shared->largestG, largestG);
}

/// to = [high | low] of the gated values, and the factor of products with these.
template <class T>
struct Halve {
  MatrixView<const float> from;  // [M, N]
  MatrixView<T> to;              // [M, 2 N]
  const float *largest;
  float *factor;
  float scale;

  __device__ void operator()(int64_t i) const {
    const PowerOfTwo range = rangeOf<T>(*largest);
    if (i == 0) *factor = scale * range.down;
    const int64_t row = i / from.cols, col = i % from.cols;
    const float value = from(row, col) * range.up;
    const T high = narrow<T>(value);
    to(row, col) = high;
    to(row, from.cols + col) = narrow<T>(value - widen(high));
  }
};

/// to = [v^T; v^T].
template <class T>
struct Stack {
  MatrixView<const T> v;  // [K1, N]
  MatrixView<T> to;       // [2 N, K1]

  __device__ void operator()(int64_t i) const {
    const int64_t row = i / v.rows, col = i % v.rows;
    to(row, col) = to(v.cols + row, col) = v(col, row);
  }
};

/// to = high + low, rounded once.
template <class T>
struct Fold {
  MatrixView<const float> from;  // [K, 2 N]
  MatrixView<T> to;              // [K, N]

  __device__ void operator()(int64_t i) const {
    const int64_t row = i / to.cols, col = i % to.cols;
    to(row, col) = narrow<T>(from(row, col) + from(row, to.cols + col));
  }
};

/// [high | low] of gated values.
template <class T>
class Halved {
 public:
  MatrixView<T> of(const Context &context, MatrixView<const float> gated, const float *largest,
                   float *factor, float scale) {
    storage_.reserve(context, 2 * gated.size());
    const MatrixView<T> to = rowMajor(storage_.data(), gated.rows, 2 * gated.cols);
    cudaForEach(context, gated.size(), Halve<T>{gated, to, largest, factor, scale});
    return to;
  }

 private:
  Buffer<T> storage_;
};

/// The gradient of a factor: rows^T [high | low], folded.
template <class T>
void makeFactor(const Context &context, const float *factors, MatrixView<const T> rows,
                MatrixView<const T> halves, MatrixView<T> to) {
  Buffer<float> sums(context, to.rows * halves.cols);
  const MatrixView<float> sum = rowMajor(sums.data(), to.rows, halves.cols);
  multiply(context, factors, rows.transposed(), halves, sum);
  cudaForEach(context, to.size(), Fold<T>{sum, to});
}

}  // namespace

template <class T>
bool products16(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                const GatedGradients &gradients) {
  const int64_t m = update.x.rows, n = update.v.cols;
  const bool isThere = m > 0 && n > 0 && update.x.cols > 0 && dy.cols > 0;
  if (!isThere || context.gpuProducts == GpuProducts::Reproducible || !fits<T>(update.x) ||
      !fits<T>(dy) || !fits<T>(update.v) || !fits<T>(update.u) || !fits<T>(gradients.x))
    return false;
  const CudaScope scope(context.device);
  const auto x = update.x.as<T>(), v = update.v.as<T>(), u = update.u.as<T>(), d = dy.as<T>();
  const bool wantsCodes = gradients.codes.data != nullptr, wantsX = gradients.x.data != nullptr;
  const bool wantsV = gradients.v.data != nullptr, wantsU = gradients.u.data != nullptr;
  const bool needsH = wantsCodes || wantsU, needsG = wantsCodes || wantsX || wantsV;
  const auto shared = Buffer<char>::zeros(context, sizeof(Shared));
  auto *const facts = reinterpret_cast<Shared *>(const_cast<char *>(shared.data()));
  Buffer<float> hidden(context, needsH ? m * n : 0), hiddenGradient(context, needsG ? m * n : 0);
  const MatrixView<float> h = rowMajor(hidden.data(), m, n),
                          g = rowMajor(hiddenGradient.data(), m, n);
  if (needsH) multiply(context, nullptr, x, v, h);
  if (needsG) multiply(context, nullptr, d, u, g);
  launch(context.stream, gateKernel<T>, gridFor(m * n, kThreads), kThreads, 0,
         Gating<T>{h, g, gradients.codes, CodeReader<T>(update.codes), update.scale, m, n, facts});
  Halved<T> ofG, ofH;
  if (wantsX || wantsV) {
    const MatrixView<const T> halves =
        ofG.of(context, g, &facts->largestG, facts->ofG, update.scale);
    if (wantsX) {
      Buffer<T> stacked(context, 2 * v.size());
      const MatrixView<T> twice = rowMajor(stacked.data(), 2 * n, v.rows);
      cudaForEach(context, v.size(), Stack<T>{v, twice});
      multiply<T>(context, facts->ofG, halves, twice, gradients.x.as<T>());
    }
    if (wantsV) makeFactor<T>(context, facts->ofG, x, halves, gradients.v.as<T>());
  }
  if (wantsU) {
    const MatrixView<const T> halves =
        ofH.of(context, h, &facts->largestH, facts->ofH, update.scale);
    makeFactor<T>(context, facts->ofH, d, halves, gradients.u.as<T>());
  }
  return true;
}

template bool products16<Half>(const Context &, const GatedLowRank &, ConstAnyMatrix,
                               const GatedGradients &);
template bool products16<BFloat16>(const Context &, const GatedLowRank &, ConstAnyMatrix,
                                   const GatedGradients &);

}  // namespace pulsora::lowrank
