#include "core/batched_launches.h"
#include "cuda/linalg/cublas.cuh"
#include "cuda/linalg/sequential_gemm.cuh"
#include "linalg/cuda_products.h"

namespace pulsora {
namespace detail {

using ConstMatrix = MatrixView<const float>;

void cudaPrepareProducts(const Context &context) {
  if (context.gpuProducts == GpuProducts::Reproducible) return;
  const CudaScope scope(context.device);
  Cublas::of(context);
}

void cudaGemm(const Context &context, float alpha, ConstMatrix a, ConstMatrix b, float beta,
              MatrixView<float> c) {
  checkProduct("gemm", a, b, c);
  if (c.size() == 0) return;
  if (BlasOperand::of(c).transposed) transposeProduct(a, b, c);
  const BlasOperand ofA = BlasOperand::of(a);
  const BlasOperand ofB = BlasOperand::of(b);
  const BlasOperand ofC = BlasOperand::of(c);
  if (context.gpuProducts == GpuProducts::Reproducible || a.cols == 0 || !ofA.fits() ||
      !ofB.fits() || !ofC.fits()) {
    cudaSequentialGemm(context, alpha, a, b, beta, c, false, nullptr);
    return;
  }
  BatchedLaunches::enqueue([=] {
    const CudaScope scope(context.device);
    Cublas::of(context).run(context, [&](cublasHandle_t handle) {
      checkCublas(cublasSgemm(handle, operation(ofB), operation(ofA), static_cast<int>(c.cols),
                              static_cast<int>(c.rows), static_cast<int>(a.cols), &alpha, b.data,
                              static_cast<int>(ofB.lead), a.data, static_cast<int>(ofA.lead), &beta,
                              c.data, static_cast<int>(ofC.lead)),
                  "cublasSgemm");
    });
  });
}

void cudaAccumulate(const Context &context, ConstMatrix a, ConstMatrix b, MatrixView<float> c) {
  checkProduct("accumulate", a, b, c);
  cudaSequentialGemm(context, 1.0f, a, b, 1.0f, c, true, context.nonfiniteFlag);
}

}  // namespace detail
}  // namespace pulsora
