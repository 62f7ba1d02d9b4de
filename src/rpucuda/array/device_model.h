#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/field.h"
#include "core/isa.h"
#include "devices/pulsed_model.h"
#include "array/pulsed_kernels.h"

namespace RPU {

/// One registered device model without its type: what the rest of the library, the bindings, the
/// documentation and the contract tests know about it. The list comes from cmake/devices.cmake.
struct DeviceModel {
  std::string name;
  std::string doc;
  std::vector<FieldInfo> fields;
  std::vector<std::string> cellMembers;  // names of the stored planes, in order
  size_t paramsBytes;
  std::shared_ptr<const void> (*readParams)(const Value &, const std::string &path);
  Value (*writeParams)(const void *);
  const PulsedParams &(*common)(const void *);
  float (*granularity)(
      const void *);  // weight change of one pulse that sets the scale of pulse trains
  const PulsedKernels &(*cpu)(Isa);
  const PulsedKernels *(*cuda)();  // null without a CUDA backend
};

/// All registered models, in the order of cmake/devices.cmake.
const std::vector<DeviceModel> &deviceModels();

/// The model of that name; ConfigError with the known names otherwise.
const DeviceModel &deviceModel(const std::string &name, const std::string &path);

/// A device model with its parameters: the value of every configuration entry that names a device.
/// Immutable, cheap to copy. As a Value it is a table of the parameters plus `"model": name`.
class DeviceParams {
 public:
  static constexpr const char *kFieldType = "device";

  /// ConstantStep with its defaults.
  DeviceParams();
  /// A model's own parameter struct: DeviceParams device = SoftBounds::Params{};
  template <class Params, class = std::enable_if_t<std::is_base_of_v<PulsedParams, Params>>>
  DeviceParams(const Params &params)
      : DeviceParams(deviceModel(Params::kName, Params::kName), RPU::writeParams(params)) {}

  static DeviceParams read(const Value &value, const std::string &path);
  Value write() const;

  const DeviceModel &model() const { return *model_; }
  const void *data() const { return data_.get(); }
  const PulsedParams &common() const { return model_->common(data_.get()); }
  float granularity() const { return model_->granularity(data_.get()); }

 private:
  DeviceParams(const DeviceModel &model, const Value &params);

  const DeviceModel *model_;
  std::shared_ptr<const void> data_;
};

}  // namespace RPU
