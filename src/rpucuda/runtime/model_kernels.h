#pragma once

#include <string>
#include <vector>

#include "runtime/device_source.h"
#include "runtime/plugin_table.h"

namespace pulsora {

/// A launcher of the kernels of a normalised source, for good. A kernel is compiled by NVRTC, or
/// taken from the cache (runtime/compilations.h), when it is first launched on a kind of GPU.
const PluginLauncher &launcherOf(const DeviceSource &source);

/// Compiles all kernels of a normalised source into the cache folder, and returns the paths of the
/// files.
std::vector<std::string> compileModelKernels(const DeviceSource &source, const std::string &arch);

}  // namespace pulsora
