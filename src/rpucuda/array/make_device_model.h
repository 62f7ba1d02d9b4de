#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "array/device_model.h"
#include "core/isa_dispatch.h"
#include "devices/batch_noise.h"
#include "devices/model_contract.h"

namespace pulsora {

// Defined in one generated source per model and instruction set.
template <class Device, Isa isa>
const PulsedKernels &cpuKernels();

namespace detail {

/// The model's parameters, including checks that depend on the model.
template <class Device>
typename Device::Params readCheckedParams(const Value &value, const std::string &path) {
  const auto params = readParams<typename Device::Params>(value, path);
  requireUsable(params, Device::granularity(params), kMergesNoise<Device>, Device::kName, path);
  return params;
}

}  // namespace detail

/// The model `Device` for registerDevice(), with its kernels for the CPU. They must be linked:
/// pulsora_add_device() of CMake compiles them.
template <class Device>
DeviceModel makeDeviceModel() {
  static_assert(isDeviceModel<Device>());
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
    return std::make_shared<const Params>(detail::readCheckedParams<Device>(value, path));
  };
  m.writeParams = [](const PulsedParams &p) { return writeParams(paramsOf<Params>(p)); };
  m.granularity = [](const PulsedParams &p) { return Device::granularity(paramsOf<Params>(p)); };
  m.cpu = [](Isa wanted) -> const PulsedKernels & {
    return *withIsa(wanted, [](auto isa) { return &cpuKernels<Device, isa>(); });
  };
  m.cuda = []() -> const PulsedKernels * { return nullptr; };
  return m;
}

}  // namespace pulsora
