#include "linalg/gemm.h"

#include <algorithm>

#include "core/check.h"
#include "core/isa_dispatch.h"
#include "core/threads.h"
#include "linalg/gemm_kernel.h"
#include "linalg/product.h"
#include "linalg/workspaces.h"

namespace pulsora {
namespace {

using ConstMatrix = MatrixView<const float>;

// A task multiplies at most kBlockRows x kBlockCols elements of C, kBlockDepth products at a time.
// Its operands are packed to lie in the first and second cache: 32 KiB of B, 68 KiB of A, and 64
// KiB of accumulators.
constexpr int64_t kBlockRows = 64;
constexpr int64_t kBlockCols = 256;
constexpr int64_t kBlockDepth = 256;
constexpr int64_t kPanelCols = GemmKernel::kMaxVectors * GemmKernel::kMaxLanes;
// The rows of packed A start in different cache sets.
constexpr int64_t kPackedRow = kBlockDepth + 16;

struct Workspace {
  alignas(64) float a[kBlockRows * kPackedRow];
  alignas(64) float b[kBlockDepth * kPanelCols];
  alignas(64) float acc[kBlockRows * kBlockCols];
};

struct Product {
  const GemmKernel &kernel;
  float alpha;
  ConstMatrix a;
  ConstMatrix b;
  float beta;
  MatrixView<float> c;
  bool accumulate = false;  // start at C instead of 0
};

// A as the kernels read it: in place if it serves one panel of columns only, else copied into
// `packed`.
ConstMatrix packA(const GemmKernel &kernel, ConstMatrix a, int64_t cols, float *packed) {
  if (cols <= kernel.lanes * GemmKernel::kMaxVectors) return a;
  kernel.copy(packed, kPackedRow, a.data, a.rowStride, a.colStride, a.rows, a.cols);
  return rowMajor<const float>(packed, a.rows, a.cols, kPackedRow);
}

// B as the kernels read it, in rows of whole vectors: in place if its layout allows that and only
// few rows of A need it, else copied into `packed`.
ConstMatrix packB(const GemmKernel &kernel, ConstMatrix b, int64_t rows, float *packed) {
  const int64_t width = ceilDiv(b.cols, kernel.lanes) * kernel.lanes;
  if (b.colStride == 1 && b.cols == width && rows <= 2 * GemmKernel::kMaxRows) return b;
  kernel.copy(packed, width, b.data, b.rowStride, b.colStride, b.rows, b.cols);
  for (int64_t k = 0; k < b.rows; ++k) {
    std::fill(packed + k * width + b.cols, packed + (k + 1) * width, 0.0f);
  }
  return rowMajor<const float>(packed, b.rows, width);
}

// acc = A B when `fresh`, else acc += A B, over all rows of A, for the columns of one panel.
void multiplyPanel(const GemmKernel &kernel, ConstMatrix a, ConstMatrix b, bool fresh, float *acc,
                   int64_t accRow) {
  const auto &micro = kernel.micro[b.cols / kernel.lanes - 1];
  const int64_t parts = ceilDiv(a.rows, kernel.maxRows);
  for (int64_t p = 0; p < parts; ++p) {
    const Part rows = part(a.rows, 1, parts, p);
    micro[rows.size - 1](a.cols, a.data + rows.begin * a.rowStride, a.rowStride, a.colStride,
                         b.data, b.rowStride, fresh, acc + rows.begin * accRow, accRow);
  }
}

void multiplyBlock(const Product &product, Part rows, Part cols, Workspace &work) {
  const GemmKernel &kernel = product.kernel;
  const int64_t panelCols = kernel.lanes * GemmKernel::kMaxVectors;
  const int64_t depth = product.a.cols;
  const MatrixView<float> c = product.c.block(rows.begin, cols.begin, rows.size, cols.size);
  // Whole vectors that need no factors are summed in C itself.
  const bool direct = c.colStride == 1 && cols.size % kernel.lanes == 0 && product.alpha == 1.0f &&
                      (product.accumulate || product.beta == 0.0f);
  float *acc = direct ? c.data : work.acc;
  const int64_t accRow = direct ? c.rowStride : ceilDiv(cols.size, kernel.lanes) * kernel.lanes;
  if (product.accumulate && !direct)
    kernel.copy(acc, accRow, c.data, c.rowStride, c.colStride, c.rows, c.cols);
  int64_t k = 0;
  do {  // once even when depth is 0, which makes the accumulators 0
    const int64_t size = std::min(kBlockDepth, depth - k);
    const ConstMatrix a =
        packA(kernel, product.a.block(rows.begin, k, rows.size, size), cols.size, work.a);
    for (int64_t j = 0; j < cols.size; j += panelCols) {
      const int64_t nc = std::min(panelCols, cols.size - j);
      const ConstMatrix b =
          packB(kernel, product.b.block(k, cols.begin + j, size, nc), rows.size, work.b);
      multiplyPanel(kernel, a, b, k == 0 && !product.accumulate, acc + j, accRow);
    }
    k += size;
  } while (k < depth);
  if (direct) return;
  kernel.store(acc, accRow, c.rows, c.cols, product.alpha, product.beta, c.data, c.rowStride,
               c.colStride);
}

// Cuts C into blocks, and into smaller ones while threads would be idle.
void multiply(const Product &product, int threads) {
  const MatrixView<float> &c = product.c;
  const int64_t panelCols = product.kernel.lanes * GemmKernel::kMaxVectors;
  const int64_t panels = ceilDiv(c.cols, panelCols);
  const int64_t rowParts = ceilDiv(c.rows, kBlockRows);
  int64_t colParts = ceilDiv(panels, kBlockCols / panelCols);
  colParts = std::min(panels, std::max(colParts, ceilDiv(threads, rowParts)));
  Workspaces<Workspace> workspaces(threads);
  threads = workspaces.threads();
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
#endif
  for (int64_t task = 0; task < rowParts * colParts; ++task) {
    const StandardFloats standard;
    multiplyBlock(product, part(c.rows, 1, rowParts, task % rowParts),
                  part(c.cols, panelCols, colParts, task / rowParts),
                  workspaces.of(threads > 1 ? threadNumber() : 0));
  }
}

void run(float alpha, ConstMatrix a, ConstMatrix b, float beta, MatrixView<float> c,
         bool accumulate, int threads, Isa isa) {
  checkProduct(accumulate ? "accumulate" : "gemm", a, b, c);
  PULSORA_CHECK(ConfigError, threads >= 1, "threads is ", threads, "; it must be >= 1");
  PULSORA_CHECK(ConfigError, isaSupported(isa), "isa is ", isaName(isa),
                ", which this machine or this build cannot execute; the best it can is ",
                isaName(bestIsa()));
  const GemmKernel &kernel = *withIsa(isa, [](auto i) { return &gemmKernel<i>(); });
  if (c.rows == 0 || c.cols == 0) return;
  // Without terms, A and B may be null: with strides of 0, all their blocks begin at `data`.
  if (a.cols == 0) a.rowStride = a.colStride = b.rowStride = b.colStride = 0;
  // Vectors run along the columns of C. If C has few columns, C^T = B^T A^T fills vectors better.
  if (c.cols < kernel.lanes && c.rows > c.cols) {
    transposeProduct(a, b, c);
  }
  constexpr int64_t kProductsPerStep = 8;  // of kStepsPerThread
  const int64_t useful = c.size() * a.cols / (kProductsPerStep * kStepsPerThread) + 1;
  multiply({kernel, alpha, a, b, beta, c, accumulate}, threadsFor(threads, useful));
}

}  // namespace

void reproducibleGemm(float alpha, MatrixView<const float> a, MatrixView<const float> b, float beta,
                      MatrixView<float> c, int threads, Isa isa) {
  run(alpha, a, b, beta, c, false, threads, isa);
}

void reproducibleAccumulate(MatrixView<const float> a, MatrixView<const float> b,
                            MatrixView<float> c, int threads, Isa isa) {
  run(1.0f, a, b, 0.0f, c, true, threads, isa);
}

}  // namespace pulsora
