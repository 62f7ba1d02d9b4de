#include "periphery/one_hot_sums.h"

#include <vector>

#include "core/backend.h"
#include "core/isa_dispatch.h"

namespace pulsora {
namespace {

constexpr int64_t kStepsOfReading = 4;

/// Whether the loops of an instruction set can number the samples and outputs of a read.
bool isInBatches(const OneHotRead &read) {
  const uint64_t first = read.output.draws.firstSample;
  const auto samples = static_cast<uint64_t>(read.weights.cols);
  return first % 8 == 0 && (first + samples) >> 32 == 0 && read.weights.rows >> 32 == 0;
}

}  // namespace

void sumOneHot(const Context &context, const OneHotRead &read, double *out) {
  const int64_t lines = read.weights.rows;
  const int64_t inputs = read.weights.cols;
  if (!context.onCpu() || !isInBatches(read)) {
    sumRows(context, lines, inputs, OneHotMagnitude{read}, out);
    return;
  }
  std::vector<float> driven(static_cast<size_t>(inputs));
  std::vector<float> late(static_cast<size_t>(inputs));
  for (int64_t j = 0; j < inputs; ++j) {
    driven[static_cast<size_t>(j)] = read.driven(j);
    late[static_cast<size_t>(j)] = lateness(j, inputs);
  }
  const DrivenInputs given{driven.data(), late.data()};
  const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &sumOneHotLines<isa>; });
  const int64_t grain = 1 + kStepsPerThread / (kStepsOfReading * (inputs + 1));
  parallelRange(context, lines, grain,
                [&](int64_t begin, int64_t end) { kernel(read, given, begin, end, out); });
}

}  // namespace pulsora
