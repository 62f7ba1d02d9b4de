#pragma once

#include <cublas_v2.h>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "cuda/core/check.cuh"
#include "cuda/core/memory.cuh"
#include "linalg/product.h"

namespace pulsora {

inline void checkCublas(cublasStatus_t status, const char *call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  if (status == CUBLAS_STATUS_ALLOC_FAILED)
    throw OutOfMemoryError(message("the GPU has no memory left for cuBLAS (", call, ")"));
  throw DeviceError(message("cuBLAS failed: ", cublasGetStatusString(status), " in ", call));
}

/// A cuBLAS handle of one stream. Handles and their workspaces must not be shared between streams
/// that run at once, nor used by two threads at a time.
class Cublas {
 public:
  explicit Cublas(const Context &context) {
    checkCublas(cublasCreate(&handle_), "cublasCreate");
    checkCublas(cublasSetStream(handle_, streamOf(context)), "cublasSetStream");
    PULSORA_CUDA_CHECK(cudaMalloc(&workspace_, kWorkspaceBytes));
    checkCublas(cublasSetWorkspace(handle_, workspace_, kWorkspaceBytes), "cublasSetWorkspace");
    checkCublas(cublasSetMathMode(handle_, CUBLAS_PEDANTIC_MATH),
                "cublasSetMathMode");  // no tf32, whatever the environment
  }

  /// The handle of the context's device and stream; made at the first product and kept, because
  /// making one takes milliseconds.
  static Cublas &of(const Context &context) {
    static std::mutex mutex;
    static auto &handles =
        *new std::map<std::pair<int, void *>, std::unique_ptr<Cublas>>;  // outlives the driver
    const std::lock_guard<std::mutex> guard(mutex);
    std::unique_ptr<Cublas> &handle = handles[{context.device, context.stream}];
    if (!handle) {
      const CaptureAside aside;
      handle = std::make_unique<Cublas>(context);
    }
    return *handle;
  }

  /// Calls work(handle), one thread at a time.
  template <class Work>
  void run(const Context &context, const Work &work) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const LentWorkspace lent(*this, context.allocator);
    work(handle_);
  }

 private:
  /// During its lifetime, products use the allocator's memory, if there is an allocator: a captured
  /// graph may run beside later work of the stream.
  struct LentWorkspace {
    LentWorkspace(Cublas &owner, ScratchAllocator *allocator)
        : cublas(allocator ? &owner : nullptr) {
      if (cublas)
        checkCublas(cublasSetWorkspace(cublas->handle_, allocator->allocateShared(kWorkspaceBytes),
                                       kWorkspaceBytes),
                    "cublasSetWorkspace");
    }
    ~LentWorkspace() {
      if (cublas) cublasSetWorkspace(cublas->handle_, cublas->workspace_, kWorkspaceBytes);
    }
    LentWorkspace(const LentWorkspace &) = delete;
    LentWorkspace &operator=(const LentWorkspace &) = delete;

    Cublas *cublas;
  };

  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // NVIDIA's advice for Hopper

  cublasHandle_t handle_ = nullptr;
  void *workspace_ = nullptr;
  std::mutex mutex_;
};

/// cuBLAS is column major and takes a row-major matrix for its transpose; so a product is handed
/// over as C^T = B^T A^T.
inline cublasOperation_t operation(const BlasOperand &operand) {
  return operand.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace pulsora
