#include "compounds/retention_parameters.h"

namespace pulsora {
namespace {

void retainArray(const CompoundSite &site, Crossbar &array, const OptionalNoiseModel &model,
                 RetentionCell cell, const char *name) {
  if (!model) return;
  PULSORA_CHECK(ConfigError, site.periphery.update.pulse_type != PulseType::None, name, " is ",
                model->model().name,
                ", but update.pulse_type is 'none', which ignores the bounds "
                "within which cells drift; use 'none_with_device', or set ",
                name, " to None");
  array.retain({model, cell});
}

}  // namespace

std::unique_ptr<AnalogDevice> RetentionParams::retain(const CompoundSite &site,
                                                      std::unique_ptr<AnalogDevice> device) const {
  for (const NamedArray &each : device->arrays())
    retainArray(site, *each.array, retention, retention_cell, "retention");
  device->setAgeCompensation(retention_compensation);
  return device;
}

std::unique_ptr<AnalogDevice> FastRetentionParams::retain(
    const CompoundSite &site, std::unique_ptr<AnalogDevice> device) const {
  for (const NamedArray &each : device->arrays()) {
    const bool visible = each.name == "visible";
    retainArray(site, *each.array, visible ? retention : retention_fast, retention_cell,
                visible ? "retention" : "retention_fast");
  }
  device->setAgeCompensation(retention_compensation);
  return device;
}

}  // namespace pulsora
