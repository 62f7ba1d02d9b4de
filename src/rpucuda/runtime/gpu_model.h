#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "array/device_model.h"
#include "runtime/plugin_table.h"

// A device model on a machine without a C++ compiler for the CPU: a GPU describes it, checks its
// parameters, and runs it.

namespace pulsora {

/// Gives what plugin::tellModel() writes if `params` is empty, else what plugin::tellParams() writes
/// of parameters with these bytes (runtime/plugin_facts.h).
using ModelFacts = std::function<std::string(std::string_view params)>;

/// The model with these facts, without a source. Its kernels are launched by `launcher`, which is
/// kept. For a tile on the CPU it throws CompilerNotFound, whose message ends with `missing`.
/// CompileError if the facts are those of another version, or cannot be read.
DeviceModel gpuModel(ModelFacts facts, const PluginLauncher &launcher, const std::string &missing);

}  // namespace pulsora
