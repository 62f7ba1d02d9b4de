#pragma once

#include <memory>
#include <string>

#include "array/device_model.h"
#include "core/isa.h"
#include "runtime/plugin_table.h"

namespace pulsora {

/// What describes a model that was compiled at run time, and keeps its parameters. `params` are those
/// of newParams().
class ModelDescription {
 public:
  virtual ~ModelDescription() = default;
  virtual std::string name() const = 0;
  virtual std::string doc() const = 0;
  virtual bool mergesNoise() const = 0;
  /// As PluginTable::fields and members.
  virtual void fields(void *context, void (*take)(void *context, const PluginField *row)) const = 0;
  virtual void members(void *context, void (*take)(void *context, const char *name)) const = 0;
  /// Parameters with their defaults.
  virtual std::shared_ptr<PulsedParams> newParams() const = 0;
  /// The parameters as the model has them, in which the fields lie at their offsets.
  virtual char *own(PulsedParams &params) const = 0;
  /// To be called once these have changed: whether they agree with one another; if not, `message` is
  /// told why.
  virtual bool settle(PulsedParams &params, const PluginMessage &message) const = 0;
  virtual float granularity(const PulsedParams &params) const = 0;
};

/// The model of a description, without a source and without kernels.
DeviceModel modelOf(std::shared_ptr<const ModelDescription> description);

/// Loads the compiled plugin of the model `name` for good. CompileError if it cannot be loaded, or is
/// none for `isa`.
const PluginTable &loadPlugin(const std::string &bytes, const std::string &name, Isa isa);

/// The model of a plugin, without a source. Its kernels for a GPU are launched by `launcher`, which is
/// kept.
DeviceModel pluginModel(const PluginTable &table, const PluginLauncher &launcher);

}  // namespace pulsora
