#pragma once

#include "core/backend.h"

namespace pulsora {

/// Calls body(context, begin, end) for parts of a mini-batch of `rows` rows, each on a thread of
/// its own, if the rows `areApart` and are enough for all threads; else once for all rows. A row is
/// work of `steps` (see kStepsPerThread). Takes no memory, so it cannot fail between reads.
template <class Body>
void readByRows(const Context &context, int64_t rows, int64_t steps, bool areApart,
                const Body &body) {
  // For fewer rows a thread, preparing the weights of a product costs as much as the product.
  constexpr int64_t kLeastRows = 32;
  if (!areApart || context.cpu.threads == 1 || rows < kLeastRows * context.cpu.threads) {
    body(context, int64_t{0}, rows);
    return;
  }
  Context alone = context;
  alone.cpu.threads = 1;
  const int64_t grain = kLeastRows * (1 + kStepsPerThread / (kLeastRows * (steps + 1)));
  parallelRange(context, rows, grain, [&](int64_t begin, int64_t end) { body(alone, begin, end); });
}

}  // namespace pulsora
