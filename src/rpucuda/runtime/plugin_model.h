#pragma once

#include <string>

#include "array/device_model.h"
#include "core/isa.h"
#include "noise_models/noise_model_params.h"
#include "runtime/model_source.h"
#include "runtime/plugin_table.h"

namespace pulsora {

/// Loads the compiled plugin of a normalised source; it is never unloaded. Table is PluginTable or
/// NoisePluginTable. CompileError if it cannot be loaded, or is not a plugin for `isa`.
template <class Table>
const Table &loadPlugin(const std::string &bytes, const ModelSource &source, Isa isa);

/// The model of a plugin, without a source. `launcher` launches its GPU kernels, and must live as
/// long.
DeviceModel pluginModel(const PluginTable &table, const PluginLauncher &launcher);
NoiseModel pluginNoiseModel(const NoisePluginTable &table, const PluginLauncher &launcher);

}  // namespace pulsora
