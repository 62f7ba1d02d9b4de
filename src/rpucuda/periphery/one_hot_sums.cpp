#include "periphery/one_hot_sums.h"

#include <vector>

#include "core/backend.h"
#include "core/isa_dispatch.h"

namespace pulsora {
namespace {

constexpr int64_t kStepsOfReading = 4;

/// Whether readings can be made eight at a time: on a CPU, the loops of an instruction set must be
/// able to number the samples and outputs.
bool isInBatches(const Context &context, const OneHotRead &read) {
  const uint64_t first = read.output.draws.firstSample;
  if (first % 8 != 0) return false;
  const auto samples = static_cast<uint64_t>(read.weights.cols);
  return !context.onCpu() || ((first + samples) >> 32 == 0 && read.weights.rows >> 32 == 0);
}

}  // namespace

void sumOneHot(const Context &context, const OneHotRead &read, double *out) {
  const int64_t lines = read.weights.rows;
  const int64_t inputs = read.weights.cols;
  if (!isInBatches(context, read)) {
    sumRows(context, lines, inputs, OneHotMagnitude{read}, out);
    return;
  }
  if (!context.onCpu()) return cudaSumOneHot(context, read, out);
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
