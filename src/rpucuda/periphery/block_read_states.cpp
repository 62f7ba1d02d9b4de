#include "core/buffer.h"
#include "periphery/block_read.h"

// What a read keeps in states.

namespace pulsora {
namespace {

constexpr char kAverageName[] = "average_abs_max";

}  // namespace

void BlockRead::saveTo(const Context &context, State &state, const std::string &prefix) const {
  if (!repeats_.empty() && !state.packs(context, prefix + kRepeats, repeats_))
    state.values[prefix + kRepeats] = Value(detail::valueOnHost(context, repeats_.data()));
  if (parameters_.noise_management != NoiseManagement::AverageAbsMax || averageMax_.empty()) return;
  state.put(context, prefix + kAverageName, Tensor::Type::F32, {1}, averageMax_);
}

void BlockRead::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  if (!repeats_.empty() && !state.unpacks(context, prefix + kRepeats, repeats_)) {
    const bool has = state.values.count(prefix + kRepeats) != 0;
    const uint64_t count = has ? state.counter(prefix + kRepeats) : 0;
    detail::copyFromHost(context, repeats_.data(), &count, sizeof count);
  }
  if (parameters_.noise_management != NoiseManagement::AverageAbsMax || averageMax_.empty()) return;
  state.take(context, prefix + kAverageName, Tensor::Type::F32, {1}, averageMax_);
}

}  // namespace pulsora
