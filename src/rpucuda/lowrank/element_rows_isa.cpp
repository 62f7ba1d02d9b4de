#include "lowrank/element_rows.h"

// Compiled once per instruction set; like linalg/gemm_isa.cpp without anything of the standard library.

namespace pulsora {
namespace {

template <class T>
void widenRow(const T *PULSORA_RESTRICT from, float *PULSORA_RESTRICT to, int64_t count) {
  for (int64_t j = 0; j < count; ++j) to[j] = widen(from[j]);
}

// An element of `base` may be replaced by its successor, so that compilers are told that no other is.
template <class T>
void narrowRow(const float *PULSORA_RESTRICT sum, const T *base, T *to, int64_t count) {
  if (!base) {
    for (int64_t j = 0; j < count; ++j) to[j] = narrow<T>(sum[j]);
    return;
  }
#ifndef __clang__  // which checks for overlaps as it runs
#pragma GCC ivdep
#endif
  for (int64_t j = 0; j < count; ++j) to[j] = narrow<T>(widen(base[j]) + sum[j]);
}

constexpr ElementRows kRows = {widenRow<Half>, widenRow<BFloat16>, narrowRow<Half>,
                               narrowRow<BFloat16>};

}  // namespace

template <>
const ElementRows &elementRows<Isa::PULSORA_ISA>() {
  return kRows;
}

}  // namespace pulsora
