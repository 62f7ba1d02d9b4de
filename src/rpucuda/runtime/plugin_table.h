#pragma once

#include <cstdint>

#include "array/pulsed_kernels.h"
#include "devices/pulsed_model.h"
#include "noise_models/realise_cells.h"
#include "parameters/field_types.h"

// The interface of a device or noise model compiled at run time to the library: plain numbers,
// zero-terminated texts, and functions, so that plugin and library may come from different
// compilers. Both are compiled from the same headers, embedded in the library
// (runtime/embedded_headers.h).

namespace pulsora {

/// Version of the layout below. Increased whenever the layout changes.
constexpr uint32_t kPluginAbi = 7;

/// The names of the functions that return a table: `const PluginTable *pulsoraPlugin()` of a device
/// model, `const NoisePluginTable *pulsoraNoisePlugin()` of a noise model.
constexpr const char *kPluginEntry = "pulsoraPlugin";
constexpr const char *kNoisePluginEntry = "pulsoraNoisePlugin";

/// The types that a parameter may have.
enum class PluginType : int32_t { Bool, Int32, Int64, Float, Enum, Floats };

/// One parameter.
struct PluginField {
  const char *name;
  PluginType type;
  uint32_t offset;  // from the beginning of Params
  Range range;
  const char *unit;
  const char *doc;
  const char *const *choices;  // of an enum, in order
  int32_t choiceCount;
};

/// Takes the parts of a message, one after another.
struct PluginMessage {
  void *context;
  void (*text)(void *context, const char *text);
  void (*number)(void *context, double number);
  void (*integer)(void *context, int64_t number);
  /// A parameter's name, shown with its path in the configuration.
  void (*path)(void *context, const char *name);
};

/// Functions by which the library launches a plugin's GPU kernels on the current device, and
/// compiles them when first needed. They may throw through functions of the plugin, which have
/// nothing to clean up.
struct PluginLauncher {
  void *context;
  /// `kernel` is a gpu::ModelKernel, or 0 for the one of a noise model; `arguments` points to
  /// `count` arguments of `sizes` bytes.
  void (*launch)(void *context, int32_t kernel, uint32_t blocks, uint32_t threads,
                 const void *const *arguments, const uint64_t *sizes, uint32_t count, void *stream);
  void (*clear)(void *context, void *data, uint64_t bytes, void *stream);
  int32_t (*multipliesBits)(void *context);
};

/// The first part of a table: what the model is called, and its parameters.
struct PluginHead {
  uint32_t abi;         // kPluginAbi
  uint32_t isa;         // the Isa that the kernels were compiled for
  uint32_t commonSize;  // of PulsedParams or NoiseParams, the first part of Params
  uint32_t paramsSize;
  uint32_t paramsAlignment;
  const char *name;
  const char *doc;
  /// Calls take(context, row) for each parameter.
  void (*fields)(void *context, void (*take)(void *context, const PluginField *row));
  /// Constructs default parameters in memory `params`, of the size and alignment above.
  void (*defaults)(void *params);
  /// Checks that parameters are consistent: 1, or 0 after passing the reason to `message`.
  int32_t (*check)(const void *params, const PluginMessage *message);
};

/// A device model.
struct PluginTable {
  PluginHead head;
  uint32_t mergesNoise;  // whether noise_merge = "batch" is possible
  /// Calls take(context, name) for each name of a stored quantity.
  void (*members)(void *context, void (*take)(void *context, const char *name));
  float (*granularity)(const PulsedParams *params);
  const PulsedKernels *kernels;
  /// Kernels for a GPU. They need setLauncher() first; the launcher must live as long as they are
  /// used.
  const PulsedKernels *gpuKernels;
  void (*setLauncher)(const PluginLauncher *launcher);
};

/// A noise model.
struct NoisePluginTable {
  PluginHead head;
  double (*lastTime)(const NoiseParams &params);
  double (*readDuration)(const NoiseParams &params);
  double (*ageOf)(double time, const NoiseParams &params);
  NoiseKernels kernels;
  /// Passes the launcher of kernels.onGpu, which must live as long as that is used.
  void (*setLauncher)(const PluginLauncher *launcher);
};

}  // namespace pulsora
