#pragma once

#include <string>

#include "array/device_model.h"
#include "core/isa.h"
#include "runtime/plugin_table.h"

namespace RPU {

/// Loads a compiled plugin for good. CompileError if it cannot be loaded, or is not the model
/// `name` for `isa`.
const PluginTable &loadPlugin(const std::string &bytes, const std::string &name, Isa isa);

/// The model that a plugin's table describes, without a source. Its kernels for a GPU are launched by
/// `launcher`, which is kept.
DeviceModel modelOf(const PluginTable &table, const PluginLauncher &launcher);

}  // namespace RPU
