#include "lowrank/element_rows.h"

// Compiled once per instruction set; without the standard library, like linalg/gemm_isa.cpp.

namespace pulsora {
namespace {

template <class T>
void widenRow(const T *PULSORA_RESTRICT from, float *PULSORA_RESTRICT to, int64_t count) {
  for (int64_t j = 0; j < count; ++j) to[j] = widen(from[j]);
}

// `to` may be `base`: the pragma promises that elements overlap only with themselves.
template <class T>
void narrowRow(const float *PULSORA_RESTRICT sum, const T *base, T *to, int64_t count) {
  if (!base) {
    for (int64_t j = 0; j < count; ++j) to[j] = narrow<T>(sum[j]);
    return;
  }
#ifndef __clang__  // clang checks for overlaps at run time
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
