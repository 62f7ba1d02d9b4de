#pragma once

#include <string>

#include "array/device_model.h"
#include "core/isa.h"
#include "runtime/plugin_table.h"

namespace pulsora {

/// Loads the compiled plugin of the model `name` for good. CompileError if it cannot be loaded, or is
/// none for `isa`.
const PluginTable &loadPlugin(const std::string &bytes, const std::string &name, Isa isa);

/// The model of a plugin, without a source. Its kernels for a GPU are launched by `launcher`, which is
/// kept.
DeviceModel pluginModel(const PluginTable &table, const PluginLauncher &launcher);

}  // namespace pulsora
