#pragma once

#include "array/cpu/kernels.h"
#include "cuda/array/model_launches.h"
#include "runtime/plugin_params.h"
#include "runtime/plugin_table.h"

// A device model as a plugin, compiled at run time together with the model's text. Uses no standard
// library functions with code of their own, because it is compiled for one instruction set and
// loaded beside code for others.

namespace pulsora {
namespace plugin {

/// Launches kernels through the library.
template <class Device>
struct GpuLauncher {
  inline static const PluginLauncher *library = nullptr;

  template <gpu::ModelKernel kernel, class... Arguments>
  static void launch(void *stream, unsigned blocks, unsigned threads,
                     const Arguments &...arguments) {
    const void *const list[] = {&arguments...};
    const uint64_t sizes[] = {sizeof(Arguments)...};
    library->launch(library->context, static_cast<int32_t>(kernel), blocks, threads, list, sizes,
                    sizeof...(Arguments), stream);
  }
  static void clear(void *data, uint64_t bytes, void *stream) {
    library->clear(library->context, data, bytes, stream);
  }
  static bool multipliesBits() { return library->multipliesBits(library->context) != 0; }
};

template <class Device, Isa isa>
struct Plugin {
  using Params = typename Device::Params;
  static_assert(isPluginModel<Device>());

  static void members(void *context, void (*take)(void *, const char *)) {
    typename Device::Cell cell{};
    cell.members([&](const char *name, float &) { take(context, name); });
  }
  static float granularity(const PulsedParams *params) {
    return Device::granularity(paramsOf<Params>(*params));
  }
  static void setLauncher(const PluginLauncher *launcher) {
    GpuLauncher<Device>::library = launcher;
  }
  static const PluginTable *table() {
    static const PluginTable kTable = {headOf<Device, PulsedParams, isa>(),
                                       kMergesNoise<Device> ? 1U : 0U,
                                       &members,
                                       &granularity,
                                       &cpuKernels<Device, isa>(),
                                       &gpu::ModelLaunches<Device, GpuLauncher<Device>>::kTable,
                                       &setLauncher};
    return &kTable;
  }
};

}  // namespace plugin
}  // namespace pulsora

/// Exports the model `Device` with its kernels for `isa`.
#define PULSORA_PLUGIN(Device, isa)                                                               \
  extern "C" __attribute__((visibility("default"))) const pulsora::PluginTable *pulsoraPlugin() { \
    return pulsora::plugin::Plugin<pulsora::Device, pulsora::Isa::isa>::table();                  \
  }
