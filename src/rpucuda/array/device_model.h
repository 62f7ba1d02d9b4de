#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "array/pulsed_kernels.h"
#include "core/isa.h"
#include "devices/pulsed_model.h"
#include "parameters/field.h"

namespace pulsora {

/// One registered device model without its type: what the rest of the library, the bindings, the
/// documentation and the contract tests know about it. makeDeviceModel()
/// (array/make_device_model.h) makes one from a model's struct.
struct DeviceModel {
  std::string name;
  std::string doc;
  std::vector<FieldInfo> fields;
  std::vector<std::string> cellMembers;  // names of the stored planes, in order
  std::function<std::shared_ptr<const PulsedParams>(const Value &, const std::string &path)>
      readParams;
  // Functions that take PulsedParams expect those that readParams() returned.
  std::function<Value(const PulsedParams &)> writeParams;
  /// Weight change of one pulse, which sets the scale of pulse trains.
  std::function<float(const PulsedParams &)> granularity;
  std::function<const PulsedKernels &(Isa)> cpu;
  std::function<const PulsedKernels *()> cuda;  // gives null if it has no kernels for a GPU
  /// Text of a model that was compiled at run time; else empty.
  std::string source = {};
  std::string sourceHash = {};  // SHA-256 of the text in hexadecimal digits
};

/// Throws ConfigError, with the `path` of the configuration, unless a model whose pulses change the
/// weight by `granularity` can work with these parameters.
void requireUsable(const PulsedParams &params, float granularity, bool mergesNoise,
                   const std::string &model, const std::string &path);

/// All registered models: cmake/devices.cmake in its order, then models registered later.
/// References to models stay valid.
const std::deque<DeviceModel> &deviceModels();

/// Adds a model, so that configurations may name it, and returns it as registered. ConfigError if
/// the name is taken. No other thread may read deviceModels() meanwhile; tiles may be made.
const DeviceModel &registerDevice(DeviceModel model);

/// The model of that name; ConfigError with the known names otherwise.
const DeviceModel &deviceModel(std::string_view name, std::string_view path);

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
      : DeviceParams(deviceModel(Params::kName, Params::kName), pulsora::writeParams(params)) {}

  static DeviceParams read(const Value &value, const std::string &path);
  Value write() const;

  const DeviceModel &model() const { return *model_; }
  /// The parameters that every model has.
  const PulsedParams &common() const { return *data_; }
  /// The parameters as the model's own struct; `Params` must belong to model().
  template <class Params>
  const Params &as() const {
    return paramsOf<Params>(*data_);
  }
  float granularity() const { return model_->granularity(*data_); }

 private:
  DeviceParams(const DeviceModel &model, const Value &params);

  const DeviceModel *model_;
  std::shared_ptr<const PulsedParams> data_;
};

/// The devices of several arrays, in order: the value of a configuration entry that names 1 to
/// kMost devices. Immutable. As a Value it is a list of the devices' tables.
class DeviceList {
 public:
  static constexpr const char *kFieldType = "devices";
  static constexpr size_t kMost = 8;

  /// One ConstantStep with its defaults.
  DeviceList() : devices_(1) {}
  /// ConfigError unless there are 1 to kMost devices.
  DeviceList(std::vector<DeviceParams> devices);  // NOLINT(google-explicit-constructor)
  DeviceList(std::initializer_list<DeviceParams> devices)
      : DeviceList(std::vector<DeviceParams>(devices)) {}

  static DeviceList read(const Value &value, const std::string &path);
  Value write() const;
  /// The number of devices as the range of the parameter, for documentation.
  static std::string describeLength();

  size_t size() const { return devices_.size(); }
  const DeviceParams &operator[](size_t i) const { return devices_[i]; }
  std::vector<DeviceParams>::const_iterator begin() const { return devices_.begin(); }
  std::vector<DeviceParams>::const_iterator end() const { return devices_.end(); }

 private:
  std::vector<DeviceParams> devices_;
};

}  // namespace pulsora
