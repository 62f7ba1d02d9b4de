#include "array/device_model.h"

#include "device_list.h"
#include "devices/batch_noise.h"

namespace RPU {

// Defined in one generated source per model and instruction set.
template <class Device, Isa isa>
const PulsedKernels &cpuKernels();
template <class Device>
const PulsedKernels &cudaKernels();  // with CUDA alone

namespace {

/// The model's parameters, checked also for what depends on the model itself.
template <class Device>
typename Device::Params readDevice(const Value &value, const std::string &path) {
  const auto params = readParams<typename Device::Params>(value, path);
  if (params.noise_merge == NoiseMerge::Batch) {
    RPU_CHECK(ConfigError, kMergesNoise<Device>, joinPath(path, "noise_merge"), " is 'batch', but ",
              Device::kName,
              " has a step that depends on the weight, so that its pulses cannot be "
              "drawn at once; use noise_merge='none', or a device with constant steps such as "
              "ConstantStep");
    RPU_CHECK(
        ConfigError, params.pulse_noise == PulseNoise::ClosedForm, joinPath(path, "noise_merge"),
        " is 'batch' and ", joinPath(path, "pulse_noise"),
        " is 'sequential', which asks for a draw per pulse; leave one of them at its default");
  }
  return params;
}

template <class Device>
const PulsedKernels &kernelsFor(Isa wanted) {
  return *withIsa(wanted, [](auto isa) { return &cpuKernels<Device, isa>(); });
}

template <class Device>
DeviceModel makeModel() {
  using Params = typename Device::Params;
  static_assert(std::is_trivially_copyable_v<Params>, "Params are handed to CUDA kernels by value");
  static_assert(sizeof(typename Device::Cell) % sizeof(float) == 0, "a Cell consists of floats");
  DeviceModel m;
  m.name = Device::kName;
  m.doc = Device::kDoc;
  m.fields = describeParams<Params>();
  typename Device::Cell cell{};
  cell.members([&](const char *name, float &) { m.cellMembers.emplace_back(name); });
  m.readParams = [](const Value &value,
                    const std::string &path) -> std::shared_ptr<const PulsedParams> {
    return std::make_shared<const Params>(readDevice<Device>(value, path));
  };
  m.writeParams = [](const PulsedParams &p) { return writeParams(paramsOf<Params>(p)); };
  m.granularity = [](const PulsedParams &p) { return Device::granularity(paramsOf<Params>(p)); };
  m.cpu = &kernelsFor<Device>;
  if constexpr (kHasCuda) {
    m.cuda = []() -> const PulsedKernels * { return &cudaKernels<Device>(); };
  } else {
    m.cuda = []() -> const PulsedKernels * { return nullptr; };
  }
  return m;
}

template <class... Devices>
std::vector<DeviceModel> makeModels(TypeList<Devices...>) {
  return {makeModel<Devices>()...};
}

}  // namespace

const std::vector<DeviceModel> &deviceModels() {
  static const std::vector<DeviceModel> kModels = makeModels(AllDevices{});
  return kModels;
}

const DeviceModel &deviceModel(const std::string &name, const std::string &path) {
  std::vector<std::string> names;
  for (const auto &model : deviceModels()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  throw ConfigError(message(joinPath(path, "model"), " is '", name,
                            "', which is not a device model", suggest(name, names)));
}

DeviceParams::DeviceParams() : DeviceParams(deviceModels().front(), Value(Value::Map{})) {}

DeviceParams::DeviceParams(const DeviceModel &model, const Value &params)
    : model_(&model), data_(model.readParams(params, model.name)) {}

DeviceParams DeviceParams::read(const Value &value, const std::string &path) {
  const Value::Map *map = value.map();
  RPU_CHECK(ConfigError, map, path, " is ", value.describe(),
            "; write a device such as ConstantStep(dw_min=0.001)");
  Value::Map rest = *map;
  const auto named = rest.find("model");
  RPU_CHECK(ConfigError, named != rest.end() && named->second.text(), path,
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

}  // namespace RPU
