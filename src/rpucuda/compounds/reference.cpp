#include "compounds/reference.h"

#include <algorithm>
#include <cmath>

#include "array/events.h"
#include "linalg/math_util.h"
#include "periphery/additive_reads.h"

namespace pulsora {

std::unique_ptr<AnalogDevice> ReferenceParams::make(const CompoundSite &site) const {
  return retain(site, std::make_unique<ReferenceDevice>(*this, site));
}

std::vector<CompoundVariant> ReferenceParams::variants() {
  return {{"reference_symmetric",
           {{"reference_start", "symmetric_point"},
            {"reference_pulses", 50},
            {"read_io", "per_array"}}}};
}

ReferenceDevice::ReferenceDevice(const ReferenceParams &params, const CompoundSite &site)
    : ArrayGroup(site, {{"visible", params.visible, 1.0f}, {"reference", params.reference, -1.0f}},
                 params.read_io),
      referenceKey_(site.keys.of(1, Role::Reference)) {
  if (params.reference_start == ReferenceStart::Zero) return;
  const Buffer<float> points =
      visible().cells().symmetricPoints(site.context, params.reference_pulses, referenceKey_);
  reference().setWeights(site.context, rowMajor<const float>(points.data(), dSize(), xSize()),
                         ownWrite(0));
  visible().cells().setWeights(site.context, reference().weights(), ownWrite(0));
}

bool ReferenceDevice::updateLooksForFaults(const Context &context, int64_t) const {
  return !context.onCpu();
}

void ReferenceDevice::setWeights(const Context &context, MatrixView<const float> weights,
                                 const Counters &c) {
  written_.reserve(context, weights.size());
  const MatrixView<float> written = rowMajor(written_.data(), weights.rows, weights.cols);
  copy(context, weights, written);
  addScaled(context, {reference().weights().data, 1.0f, written});
  visible().cells().setWeights(context, written, c.events);
}

Value::Map ReferenceDevice::calibrate(const Context &context, int64_t pairs, const Counters &c) {
  const PulsedDevice &cells = visible().cells();
  const int64_t without = cells.cellsWithoutSymmetricPoint(context);
  PULSORA_CHECK(ConfigError, 2 * without <= cells.size(), without, " of ", cells.size(),
                " cells of visible have no symmetric point, where pulses up and down cancel; "
                "choose a device whose steps fall towards its bounds, such as SoftBounds, or write "
                "references by hand (tile.arrays[\"reference\"])");
  Buffer<float> before(context, cells.size());
  getWeights(context, rowMajor(before.data(), dSize(), xSize()));
  written_.reserve(context, cells.size());
  const RandomKey key = partKey(referenceKey_, static_cast<uint32_t>(c.events) + 1);
  const Buffer<float> found = cells.symmetricPoints(context, pairs, key);
  reference().setWeights(context, rowMajor<const float>(found.data(), dSize(), xSize()), c.events);
  setWeights(context, rowMajor<const float>(before.data(), dSize(), xSize()), c);
  return describeError(context, pairs, without);
}

// The distance of references from the symmetric points that they stand for.
Value::Map ReferenceDevice::describeError(const Context &context, int64_t pairs,
                                          int64_t without) const {
  const auto size = static_cast<size_t>(visible().cells().size());
  const Buffer<float> points = visible().cells().symmetricPoints(context);
  std::vector<float> exact(size);
  std::vector<float> have(size);
  detail::copyToHost(context, exact.data(), points.data(), points.bytes());
  detail::copyToHost(context, have.data(), at(1).cells().weights().data, points.bytes());
  double sum = 0.0;
  double squares = 0.0;
  double largest = 0.0;
  for (size_t i = 0; i < size; ++i) {
    const double error = static_cast<double>(have[i]) - static_cast<double>(exact[i]);
    sum += error;
    squares += error * error;
    largest = std::max(largest, std::fabs(error));
  }
  const auto cells = static_cast<double>(size);
  return {{"pulse_pairs", Value(pairs)},
          {"cells", Value(static_cast<int64_t>(size))},
          {"cells_without_point", Value(without)},
          {"error_mean", Value(sum / cells)},
          {"error_rms", Value(std::sqrt(squares / cells))},
          {"error_max", Value(largest)}};
}

Value::Map ReferenceDevice::explain(const Context &context, MatrixView<const float> x,
                                    MatrixView<const float> d, float lr) const {
  return explainPulses(context, visible().updater().parameters(), visible().cells().granularity(),
                       x, d, lr);
}

}  // namespace pulsora
