#include "linalg/math_util.h"

#include <algorithm>

#include "core/backend.h"
#include "core/buffer.h"
#include "linalg/cuda_products.h"
#include "linalg/gemm.h"
#include "linalg/matrix_functors.h"

namespace pulsora {
namespace {

template <class T>
MatrixView<T> asColumn(VectorView<T> v) {
  return {v.data, v.size, 1, v.stride, 1};
}

// Whether a matrix is best walked column by column.
template <class T>
bool runsDown(MatrixView<T> m) {
  return m.rows > 1 && (m.cols <= 1 || (m.colStride != 1 && m.rowStride < m.colStride));
}

// functor.at(i, j) for every element on the CPU, `width` columns of a thread's rows at a time.
template <class Functor>
void forEachByTiles(const Context &context, int64_t rows, int64_t cols, int64_t width,
                    const Functor &functor) {
  const int64_t grain = 1 + kStepsPerThread / (cols + 1);
  parallelRange(context, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t j0 = 0; j0 < cols; j0 += width) {
      const int64_t j1 = std::min(cols, j0 + width);
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = j0; j < j1; ++j) functor.at(i, j);
      }
    }
  });
}

}  // namespace

void gemm(const Context &context, float alpha, MatrixView<const float> a, MatrixView<const float> b,
          float beta, MatrixView<float> c) {
  if (!context.onCpu()) {
    detail::cudaGemm(context, alpha, a, b, beta, c);
  } else {
    reproducibleGemm(alpha, a, b, beta, c, context.cpu.threads, context.cpu.isa);
  }
}

void accumulate(const Context &context, MatrixView<const float> a, MatrixView<const float> b,
                MatrixView<float> c) {
  if (context.onCpu()) {
    reproducibleAccumulate(a, b, c, context.cpu.threads, context.cpu.isa);
  } else {
    detail::cudaAccumulate(context, a, b, c);
  }
}

void prepareProducts(const Context &context) {
  if (!context.onCpu()) detail::cudaPrepareProducts(context);
}

void gemv(const Context &context, float alpha, MatrixView<const float> a, VectorView<const float> x,
          float beta, VectorView<float> y) {
  PULSORA_CHECK(InputError, a.cols == x.size && a.rows == y.size, "gemv: A is [", a.rows, ", ",
                a.cols, "], x has ", x.size, " elements and y has ", y.size,
                "; A needs a column for each element of x and a row for each of y");
  gemm(context, alpha, a, asColumn(x), beta, asColumn(y));
}

void ger(const Context &context, float alpha, VectorView<const float> x, VectorView<const float> y,
         MatrixView<float> a) {
  PULSORA_CHECK(InputError, a.rows == x.size && a.cols == y.size, "ger: A is [", a.rows, ", ",
                a.cols, "], x has ", x.size, " elements and y has ", y.size,
                "; A needs a row for each element of x and a column for each of y");
  Context ordered = context;
  ordered.gpuProducts = GpuProducts::Reproducible;
  gemm(ordered, alpha, asColumn(x), asColumn(y).transposed(), 1.0f, a);
}

void scal(const Context &context, float alpha, MatrixView<float> a) {
  if (runsDown(a)) a = a.transposed();
  const ElementScaler scaler{alpha, a};
  if (context.onCpu()) {
    forEachByTiles(context, a.rows, a.cols, a.cols, scaler);
  } else {
    forEach(context, a.size(), scaler);
  }
}

void transpose(const Context &context, MatrixView<const float> from, MatrixView<float> to) {
  PULSORA_CHECK(InputError, from.rows == to.cols && from.cols == to.rows, "transpose: from is [",
                from.rows, ", ", from.cols, "] and to is [", to.rows, ", ", to.cols,
                "]; to needs the columns of from as its rows, and the rows as its columns");
  copy(context, from.transposed(), to);
}

std::vector<float> onHost(const Context &context, MatrixView<const float> matrix) {
  std::vector<float> host(static_cast<size_t>(matrix.size()));
  if (context.onCpu()) {
    copy(context, matrix, rowMajor(host.data(), matrix.rows, matrix.cols));
    return host;
  }
  Buffer<float> packed(context, matrix.size());
  copy(context, matrix, rowMajor(packed.data(), matrix.rows, matrix.cols));
  detail::copyToHost(context, host.data(), packed.data(), packed.bytes());
  return host;
}

namespace detail {

template <class T>
bool isPacked(MatrixView<T> a) {
  return a.colStride == 1 && (a.rowStride == a.cols || a.rows == 1) &&
         reinterpret_cast<uintptr_t>(a.data) % sizeof(SixteenBytes) == 0 &&
         static_cast<size_t>(a.size()) * sizeof(T) % sizeof(SixteenBytes) == 0;
}

template <class Src, class Dst>
void copyElements(const Context &context, MatrixView<const Src> from, MatrixView<Dst> to) {
  PULSORA_CHECK(InputError, from.rows == to.rows && from.cols == to.cols, "copy: from is [",
                from.rows, ", ", from.cols, "] and to is [", to.rows, ", ", to.cols,
                "]; both need the same shape");
  if (runsDown(to)) {  // so that writes are sequential
    from = from.transposed();
    to = to.transposed();
  }
  const ElementCopier<Src, Dst> copier{from, to};
  const bool transposing = runsDown(from);
  if (context.onCpu()) {
    // Tiles whose two sides fit the first cache, if one side is read across its lines.
    constexpr int64_t kTile = 32;
    forEachByTiles(context, to.rows, to.cols, transposing ? kTile : to.cols, copier);
  } else if (std::is_same_v<Src, Dst> && isPacked(from) && isPacked(to)) {
    const auto bytes = to.size() * static_cast<int64_t>(sizeof(Dst));
    forEach(context, bytes / static_cast<int64_t>(sizeof(SixteenBytes)),
            MemoryCopier{reinterpret_cast<const SixteenBytes *>(from.data),
                         reinterpret_cast<SixteenBytes *>(to.data)});
  } else if (!transposing) {
    forEach(context, to.size(), copier);
  } else if constexpr (kHasCuda) {
    cudaTransposingCopy(context, copier);
  } else {
    throwWithoutCuda();
  }
}

#define PULSORA_COPY_ELEMENTS(Src, Dst) \
  template void copyElements<Src, Dst>(const Context &, MatrixView<const Src>, MatrixView<Dst>);
PULSORA_FOR_EACH_COPY(PULSORA_COPY_ELEMENTS)
#undef PULSORA_COPY_ELEMENTS

}  // namespace detail
}  // namespace pulsora
