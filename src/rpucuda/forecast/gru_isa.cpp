#include "forecast/gru_kernels.h"

// Compiled once per instruction set; like linalg/gemm_isa.cpp without anything of the standard library.

namespace pulsora {
namespace {

/// All columns of a row at a time, from and to places that do not overlap but where an element is
/// replaced by its successor. All matrices have adjacent columns, which lets compilers vectorise.
template <class Functor>
void rows(const Functor &functor, int64_t count, int64_t cols) {
  for (int64_t i = 0; i < count; ++i) {
#ifndef __clang__  // which checks for overlaps as it runs
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
