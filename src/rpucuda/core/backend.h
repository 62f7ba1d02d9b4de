#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/check.h"
#include "core/context.h"
#include "core/has_cuda.h"
#include "core/threads.h"

// The verbs of a backend. Code above core/ (IO, schedules, LRTT) is written once in terms of these
// verbs; storage is in core/buffer.h and matrix products in linalg/math_util.h.

namespace pulsora {

/// Calls body(begin, end) on disjoint ranges that cover [0, size), on the context's CPU threads.
/// The length of every range but the last is a multiple of `grain`, the work worth one more thread
/// (see kStepsPerThread). Results must not depend on where the ranges are cut.
template <class Body>
void parallelRange(const Context &context, int64_t size, int64_t grain, const Body &body) {
  const int64_t chunks = (size + grain - 1) / grain;
  const int threads = threadsFor(context.cpu.threads, chunks);
  if (threads <= 1) {
    const StandardFloats standard;
    if (size > 0) body(int64_t{0}, size);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static)
#endif
  for (int t = 0; t < threads; ++t) {
    const StandardFloats standard;
    const int64_t begin = chunks * t / threads * grain;
    const int64_t end = std::min(size, chunks * (t + 1) / threads * grain);
    if (begin < end) body(begin, end);
  }
}

/// forEach() and sumRows() on the GPU. cuda/core/for_each.cuh defines them; each room instantiates
/// them for its functors in cuda/<room>/functors.cu.
template <class Functor>
void cudaForEach(const Context &context, int64_t size, const Functor &functor);
template <class Term>
void cudaSumRows(const Context &context, int64_t rows, int64_t terms, const Term &term,
                 double *out);

/// Calls functor(i) for every i in [0, size), in any order. The functor is a plain struct of
/// pointers and numbers with a PULSORA_HD call operator.
template <class Functor>
void forEach(const Context &context, int64_t size, const Functor &functor) {
  static_assert(std::is_trivially_copyable_v<Functor>, "a functor is handed to the GPU by value");
  if (context.onCpu()) {
    parallelRange(context, size, kStepsPerThread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) functor(i);
    });
    return;
  }
  if constexpr (kHasCuda) {
    cudaForEach(context, size, functor);
  } else {
    throwWithoutCuda();
  }
}

/// Number of partial sums of a row. Term j is added to part j % kSumLanes, in order of j; then the
/// second half of the parts is added to the first, until one is left. The order determines the bits
/// of the result.
constexpr int kSumLanes = 32;

/// out[i] = sum of term(i, j) over j < terms, for every i < rows. `term` is a plain struct with a
/// PULSORA_HD call operator that gives a double.
template <class Term>
void sumRows(const Context &context, int64_t rows, int64_t terms, const Term &term, double *out) {
  static_assert(std::is_trivially_copyable_v<Term>, "a functor is handed to the GPU by value");
  if (context.onCpu()) {
    const int64_t grain = 1 + kStepsPerThread / (terms + 1);
    parallelRange(context, rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double part[kSumLanes] = {};
        for (int64_t j = 0; j < terms; ++j) part[j % kSumLanes] += term(i, j);
        for (int half = kSumLanes / 2; half > 0; half /= 2) {
          for (int l = 0; l < half; ++l) part[l] += part[l + half];
        }
        out[i] = part[0];
      }
    });
    return;
  }
  if constexpr (kHasCuda) {
    cudaSumRows(context, rows, terms, term, out);
  } else {
    throwWithoutCuda();
  }
}

}  // namespace pulsora
