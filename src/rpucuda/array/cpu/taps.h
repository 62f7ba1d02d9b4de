#pragma once

#include "array/cpu/dense.h"

namespace pulsora {
namespace cpu {

/// One block of a row, whose first visit is v, carries out LineTaps without resets; cell k of the
/// row is its first.
template <Isa isa, class Device>
PULSORA_HD void tapBlock(Block<isa, Device> &b, RandomKey key, const LineTaps &taps, int64_t v,
                         int64_t k, int64_t others) {
  b.template load<false>();
  DenseSamples<isa, Device> samples(b, key, taps.words, true);
  int64_t sample = 0;
  for (; v < taps.visits.count; v = taps.visits.next(v)) {
    samples.take(sample, taps.samplesBefore(v));
    sample = taps.samplesBefore(v);
    b.copyWeights(taps.values + v * others + k);
  }
}

/// The elements [begin, end) of array/line_events.h of LineTaps on rows, without resets.
template <Isa isa, class Device>
PULSORA_HD void tapRows(const CellArray &a, const LineTaps &taps, int64_t begin, int64_t end) {
  const auto p = paramsOf<typename Device::Params>(*a.params);
  for (int64_t first = begin; first < end;) {
    const int64_t v = first / a.cols;
    const int64_t rowEnd = (v + 1) * a.cols < end ? (v + 1) * a.cols : end;
    if (!taps.visits.isFirst(v)) {
      first = rowEnd;
      continue;
    }
    const int64_t row = taps.visits.line(v) * a.cols;
    while (first < rowEnd) {
      const int64_t k = first - v * a.cols;
      const int64_t left = rowEnd - first;
      const int count = static_cast<int>(left < kBlock ? left : kBlock);
      Block<isa, Device> block(a, p, row + k, count);
      tapBlock(block, a.key, taps, v, k, a.cols);
      first += count;
    }
  }
}

}  // namespace cpu
}  // namespace pulsora
