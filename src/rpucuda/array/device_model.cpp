#include "array/device_model.h"

#include <limits>
#include <mutex>
#include <utility>

#include "array/make_device_model.h"
#include "core/has_cuda.h"
#include "device_list.h"

namespace pulsora {

template <class Device>
const PulsedKernels &cudaKernels();  // defined in one generated source per model, with CUDA alone

namespace {

template <class Device>
DeviceModel makeModelOfTree() {
  DeviceModel m = makeDeviceModel<Device>();
  if constexpr (kHasCuda) {
    m.cuda = []() -> const PulsedKernels * { return &cudaKernels<Device>(); };
  }
  return m;
}

template <class... Devices>
std::deque<DeviceModel> makeModels(TypeList<Devices...>) {
  return {makeModelOfTree<Devices>()...};
}

std::deque<DeviceModel> &registry() {
  static std::deque<DeviceModel> models = makeModels(AllDevices{});
  return models;
}

std::mutex &registryLock() {
  static std::mutex lock;
  return lock;
}

const DeviceModel &firstModel() {
  static const DeviceModel &first = registry().front();
  return first;
}

}  // namespace

void requireUsable(const PulsedParams &params, float granularity, bool mergesNoise,
                   const std::string &model, const std::string &path) {
  PULSORA_CHECK(ConfigError, granularity > 0.0f && granularity <= std::numeric_limits<float>::max(),
                joinPath(path, "dw_min"), " is ", params.dw_min,
                " and a pulse changes the weight by ", granularity,
                " on average, from which no train can be scaled; use parameters for which "
                "this is a positive, finite number");
  if (params.noise_merge == NoiseMerge::Batch) {
    PULSORA_CHECK(ConfigError, mergesNoise, joinPath(path, "noise_merge"), " is 'batch', but ",
                  model,
                  " has a step that is no linear function of the weight, so that its pulses cannot "
                  "be drawn at once; use noise_merge='none', or ConstantStep, LinearStep, "
                  "SoftBounds or SoftBoundsReference");
    PULSORA_CHECK(
        ConfigError, params.pulse_noise == PulseNoise::ClosedForm, joinPath(path, "noise_merge"),
        " is 'batch' and ", joinPath(path, "pulse_noise"),
        " is 'sequential', which asks for a draw per pulse; leave one of them at its default");
  }
}

const std::deque<DeviceModel> &deviceModels() { return registry(); }

const DeviceModel &registerDevice(DeviceModel model) {
  PULSORA_CHECK(ConfigError, !model.name.empty(),
                "a device model has no name; set kName of its struct");
  const std::lock_guard<std::mutex> lock(registryLock());
  for (const DeviceModel &known : deviceModels()) {
    PULSORA_CHECK(ConfigError, known.name != model.name, "there is a device model '", model.name,
                  "' already; choose another name");
  }
  PULSORA_CHECK(
      ConfigError,
      model.cpu && model.cuda && model.readParams && model.writeParams && model.granularity,
      "the device model '", model.name,
      "' lacks one of its functions; makeDeviceModel() sets them all");
  return registry().emplace_back(std::move(model));
}

const DeviceModel &deviceModel(std::string_view name, std::string_view path) {
  const std::lock_guard<std::mutex> lock(registryLock());
  std::vector<std::string> names;
  for (const auto &model : deviceModels()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  throw ConfigError(message(joinPath(std::string(path), "model"), " is '", name,
                            "', which is not a device model (a model from source is known after "
                            "pulsora.devices.from_source())",
                            suggest(std::string(name), names)));
}

DeviceParams::DeviceParams() : DeviceParams(firstModel(), Value(Value::Map{})) {}

DeviceParams::DeviceParams(const DeviceModel &model, const Value &params)
    : model_(&model), data_(model.readParams(params, model.name)) {}

DeviceParams DeviceParams::read(const Value &value, const std::string &path) {
  const Value::Map *map = value.map();
  PULSORA_CHECK(ConfigError, map, path, " is ", value.describe(),
                "; write a device such as ConstantStep(dw_min=0.001)");
  Value::Map rest = *map;
  const auto named = rest.find("model");
  PULSORA_CHECK(ConfigError, named != rest.end() && named->second.text(), path,
                " names no device model; add 'model', for example 'ConstantStep'");
  DeviceParams params;
  params.model_ = &deviceModel(*named->second.text(), path);
  rest.erase(named);
  params.data_ = params.model_->readParams(Value(std::move(rest)), path);
  return params;
}

Value DeviceParams::write() const {
  Value value = model_->writeParams(*data_);
  (*value.map())["model"] = model_->name;
  return value;
}

namespace {

void requireLength(size_t length, const std::string &path) {
  PULSORA_CHECK(ConfigError, length >= 1 && length <= DeviceList::kMost, path, " has ", length,
                " devices; give ", DeviceList::describeLength());
}

}  // namespace

DeviceList::DeviceList(std::vector<DeviceParams> devices) : devices_(std::move(devices)) {
  requireLength(devices_.size(), "a list of devices");
}

std::string DeviceList::describeLength() { return message("1 to ", kMost, " devices"); }

DeviceList DeviceList::read(const Value &value, const std::string &path) {
  const Value::List *list = value.list();
  PULSORA_CHECK(ConfigError, list, path, " is ", value.describe(),
                "; write a list of devices such as [ConstantStep(), SoftBounds()]");
  requireLength(list->size(), path);
  std::vector<DeviceParams> devices;
  for (const Value &entry : *list)
    devices.push_back(DeviceParams::read(entry, message(path, "[", devices.size(), "]")));
  return devices;
}

Value DeviceList::write() const {
  Value::List list;
  for (const DeviceParams &device : devices_) list.push_back(device.write());
  return Value(std::move(list));
}

}  // namespace pulsora
