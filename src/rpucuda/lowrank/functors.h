#pragma once

#include "core/backend.h"
#include "core/view.h"
#include "lowrank/codes.h"
#include "lowrank/element_rows.h"

// The element functors of low-rank updates: at(i, j) computes one element, operator() the element
// with a number in row-major order (see forEach), and row(i, rows) a row on the CPU.

namespace pulsora {

/// to = from.
template <class T>
struct Widener {
  MatrixView<const T> from;
  MatrixView<float> to;

  PULSORA_HD void at(int64_t i, int64_t j) const { to(i, j) = widen(from(i, j)); }
  PULSORA_HD void operator()(int64_t i) const { at(i / to.cols, i % to.cols); }
  void row(int64_t i, const ElementRows &rows) const {
    if (from.colStride == 1 && to.colStride == 1) {
      rows.widen(&from(i, 0), &to(i, 0), to.cols);
    } else {
      for (int64_t j = 0; j < to.cols; ++j) at(i, j);
    }
  }
};

/// to = base + sum, rounded once; without a base, to = sum. `base` may be `to` itself.
template <class T>
struct Narrower {
  MatrixView<const float> sum;
  MatrixView<const T> base;
  MatrixView<T> to;

  PULSORA_HD void at(int64_t i, int64_t j) const {
    to(i, j) = narrow<T>(base.data ? widen(base(i, j)) + sum(i, j) : sum(i, j));
  }
  PULSORA_HD void operator()(int64_t i) const { at(i / to.cols, i % to.cols); }
  void row(int64_t i, const ElementRows &rows) const {
    if (sum.colStride == 1 && to.colStride == 1 && (!base.data || base.colStride == 1)) {
      rows.narrow(&sum(i, 0), base.data ? &base(i, 0) : nullptr, &to(i, 0), to.cols);
    } else {
      for (int64_t j = 0; j < to.cols; ++j) at(i, j);
    }
  }
};

/// h *= codes * factor, for rows of the batch from `first` on.
template <class T>
struct CodeGate {
  CodeReader<T> codes;
  int64_t first;
  float factor;
  MatrixView<float> h;

  PULSORA_HD void at(int64_t i, int64_t j) const { h(i, j) *= codes.at(first + i, j) * factor; }
  PULSORA_HD void operator()(int64_t i) const { at(i / h.cols, i % h.cols); }
  void row(int64_t i, const ElementRows &) const {
    for (int64_t j = 0; j < h.cols; ++j) at(i, j);
  }
};

/// The gradient of the codes, scale h .* g, where h = x v and g = dy u.
struct CodeGradient {
  MatrixView<const float> h;
  MatrixView<const float> g;
  float scale;
  MatrixView<float> to;

  PULSORA_HD void at(int64_t i, int64_t j) const { to(i, j) = scale * h(i, j) * g(i, j); }
  PULSORA_HD void operator()(int64_t i) const { at(i / to.cols, i % to.cols); }
  void row(int64_t i, const ElementRows &) const {
    for (int64_t j = 0; j < to.cols; ++j) at(i, j);
  }
};

/// Computes all elements of a functor's matrix [rows, cols].
template <class Functor>
void makeElements(const Context &context, int64_t rows, int64_t cols, const Functor &functor) {
  if (!context.onCpu()) return forEach(context, rows * cols, functor);
  const ElementRows &rowsOf = elementRowsFor(context.cpu.isa);
  const int64_t grain = 1 + kStepsPerThread / (cols + 1);
  parallelRange(context, cols == 0 ? 0 : rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) functor.row(i, rowsOf);
  });
}

/// Uses of a macro for every element type.
#define PULSORA_FOR_EACH_ELEMENT(Use) Use(float) Use(Half) Use(BFloat16)

}  // namespace pulsora
