#pragma once

#include <string>

#include "array/device_model.h"
#include "core/isa.h"
#include "runtime/plugin_table.h"

namespace pulsora {

/// Loads the compiled plugin of the model `name`; it is never unloaded. CompileError if it cannot
/// be loaded, or is not a plugin for `isa`.
const PluginTable &loadPlugin(const std::string &bytes, const std::string &name, Isa isa);

/// The model of a plugin, without a source. `launcher` launches its GPU kernels, and must live as
/// long.
DeviceModel pluginModel(const PluginTable &table, const PluginLauncher &launcher);

}  // namespace pulsora
