#include "compounds/reference.h"

#include "array/events.h"
#include "linalg/math_util.h"
#include "periphery/additive_reads.h"

namespace pulsora {

std::unique_ptr<AnalogDevice> ReferenceParams::make(const CompoundSite &site) const {
  return std::make_unique<ReferenceDevice>(*this, site);
}

std::vector<CompoundVariant> ReferenceParams::variants() {
  return {{"reference_symmetric",
           {{"reference_start", "symmetric_point"},
            {"reference_pulses", 50},
            {"read_io", "per_array"}}}};
}

ReferenceDevice::ReferenceDevice(const ReferenceParams &params, const CompoundSite &site)
    : ArrayGroup(site, {{"visible", params.visible, 1.0f}, {"reference", params.reference, -1.0f}},
                 params.read_io) {
  if (params.reference_start == ReferenceStart::Zero) return;
  const Buffer<float> points = visible().cells().symmetricPoints(
      site.context, params.reference_pulses, site.keys.of(1, Role::Reference));
  reference().setWeights(site.context, rowMajor<const float>(points.data(), dSize(), xSize()),
                         ownWrite(0));
  visible().cells().setWeights(site.context, reference().weights(), ownWrite(0));
}

bool ReferenceDevice::updateLooksForFaults(const Context &context, int64_t) const {
  return !context.onCpu() && !isDigital(visible().updater().parameters().pulse_type);
}

void ReferenceDevice::setWeights(const Context &context, MatrixView<const float> weights,
                                 const Counters &c) {
  written_.reserve(context, weights.size());
  const MatrixView<float> written = rowMajor(written_.data(), weights.rows, weights.cols);
  copy(context, weights, written);
  addScaled(context, {reference().weights().data, 1.0f, written});
  visible().cells().setWeights(context, written, c.events);
}

Value::Map ReferenceDevice::explain(const Context &context, MatrixView<const float> x,
                                    MatrixView<const float> d, float lr) const {
  return explainPulses(context, visible().updater().parameters(), visible().cells().granularity(),
                       x, d, lr);
}

}  // namespace pulsora
