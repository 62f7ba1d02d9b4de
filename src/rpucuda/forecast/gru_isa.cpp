#include "forecast/gru_kernels.h"

// Compiled once per instruction set; without the standard library, like linalg/gemm_isa.cpp.

namespace pulsora {
namespace {

/// Computes all columns row by row. Inputs and outputs overlap only where an element is replaced by
/// its new value. Columns of all matrices are adjacent, so that compilers vectorise.
template <class Functor>
void rows(const Functor &functor, int64_t count, int64_t cols) {
  for (int64_t i = 0; i < count; ++i) {
#ifndef __clang__  // clang checks for overlaps at run time
#pragma GCC ivdep
#endif
    for (int64_t j = 0; j < cols; ++j) functor.at(i, j);
  }
}

void encoded(const Encoded &f, int64_t count) { rows(f, count, f.out.cols); }
void gatesBefore(const GatesBefore &f, int64_t count) { rows(f, count, f.h.cols); }
void stepBefore(const StepBefore &f, int64_t count) { rows(f, count, f.to.cols); }
void stepAfter(const StepAfter &f, int64_t count) { rows(f, count, f.to.cols); }

constexpr GruKernels kKernels = {encoded, gatesBefore, stepBefore, stepAfter};

}  // namespace

template <>
const GruKernels &gruKernels<Isa::PULSORA_ISA>() {
  return kKernels;
}

}  // namespace pulsora
