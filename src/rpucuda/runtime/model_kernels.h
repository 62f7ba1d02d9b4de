#pragma once

#include <string>
#include <vector>

#include "runtime/model_source.h"
#include "runtime/plugin_table.h"

namespace pulsora {

/// A launcher of the kernels of a normalised source; never destroyed. A kernel is compiled by
/// NVRTC, or taken from the cache (runtime/compilations.h), when first launched on a GPU
/// architecture.
const PluginLauncher &launcherOf(const ModelSource &source);

/// Compiles all kernels of a normalised source into the cache folder, and returns the paths of the
/// files.
std::vector<std::string> compileModelKernels(const ModelSource &source, const std::string &arch);

}  // namespace pulsora
