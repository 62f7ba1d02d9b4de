#include "periphery/stage_calls.h"

#include "core/backend.h"
#include "core/isa_dispatch.h"
#include "periphery/read_kernels.h"

namespace pulsora {
namespace {

// Rows per thread, in whole groups of eight samples. An element takes some four steps.
int64_t rowGrain(int64_t cols) { return 8 * (1 + kStepsPerThread / 4 / (8 * (cols + 1))); }

}  // namespace

void convertInputs(const Context &context, const InputStage &stage, bool measureFirst) {
  if (context.onCpu()) {
    const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &convertInputs<isa>; });
    parallelRange(context, stage.list.count, rowGrain(stage.in.cols),
                  [&](int64_t begin, int64_t end) { kernel(stage, measureFirst, begin, end); });
    return;
  }
  cudaConvertInputs(context, stage, measureFirst);
}

void convertQuietly(const Context &context, const QuietInput &quiet) {
  if (context.onCpu()) {
    const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &convertQuietly<isa>; });
    parallelRange(context, quiet.in.rows, rowGrain(quiet.in.cols),
                  [&](int64_t begin, int64_t end) { kernel(quiet, begin, end); });
    return;
  }
  forEach(context, quiet.in.size(), quiet);
}

void measureInputs(const Context &context, const InputStage &stage) {
  if (context.onCpu()) {
    const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &measureInputs<isa>; });
    parallelRange(context, stage.in.rows, rowGrain(stage.in.cols),
                  [&](int64_t begin, int64_t end) { kernel(stage, begin, end); });
    return;
  }
  cudaMeasureInputs(context, stage);
}

void finishOutputs(const Context &context, const OutputStage &stage) {
  if (context.onCpu()) {
    const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &finishOutputs<isa>; });
    parallelRange(context, stage.list.count, rowGrain(stage.out.cols),
                  [&](int64_t begin, int64_t end) { kernel(stage, begin, end); });
    return;
  }
  cudaFinishOutputs(context, stage);
}

}  // namespace pulsora
