#include <algorithm>

#include "core/backend.h"
#include "periphery/block_read.h"
#include "periphery/wire_solver.h"

// Reads of an array whose wires have resistance.

namespace pulsora {
namespace {

constexpr int64_t kNumbersAtOnce = int64_t{1} << 22;  // of each kind: more samples take turns

int64_t samplesAtOnce(int64_t cells, int64_t samples) {
  return std::clamp<int64_t>(kNumbersAtOnce / std::max<int64_t>(cells, 1), 1,
                             std::max<int64_t>(samples, 1));
}

}  // namespace

void BlockRead::reserveWires(const Context &context, int64_t samples, bool product) {
  PULSORA_CHECK(ConfigError, !product,
                "wires is 'solved', and this read has no array of its own; choose 'formula'");
  const int64_t cells = outSize_ * inSize_;
  scratch_.wirePivots.reserve(context, 3 * cells);
  scratch_.wireVoltages.reserve(context, 3 * cells * samplesAtOnce(cells, samples));
}

void BlockRead::prepareWires(const Context &context, MatrixView<const float> weights) {
  const WireNetwork net{weights, parameters_.wireOfInput(), parameters_.wireOfOutput(),
                        scratch_.wirePivots.data()};
  forEach(context, 2 * outSize_ + inSize_, WirePivots{net});
}

// The number of sweeps is fixed, so that a sample's result depends on no other sample. One or two
// are exact where lines of one direction have no resistance.
void BlockRead::solveWires(const Context &context, MatrixView<const float> weights,
                           MatrixView<const float> drivers, MatrixView<float> sums) {
  const WireNetwork net{weights, parameters_.wireOfInput(), parameters_.wireOfOutput(),
                        scratch_.wirePivots.data()};
  const int64_t cells = net.size();
  const int64_t most = samplesAtOnce(cells, drivers.rows);
  const int few = net.inputWire == 0.0f ? 1 : 2;
  const int sweeps = few == 2 && net.outputWire > 0.0f ? parameters_.wire_sweeps : few;
  for (int64_t first = 0; first < drivers.rows; first += most) {
    const int64_t count = std::min(most, drivers.rows - first);
    float *memory = scratch_.wireVoltages.data();
    const WireVoltages v{drivers.block(first, 0, count, inSize_), memory, memory + most * cells,
                         memory + 2 * most * cells};
    const MatrixView<float> to = sums.block(first, 0, count, outSize_);
    forEach(context, count * cells, WireStart{net, v});
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      if (sweep > 0) forEach(context, count * inSize_, InputLines{net, v});
      forEach(context, count * outSize_, OutputLines{net, v, to});
    }
  }
}

}  // namespace pulsora
