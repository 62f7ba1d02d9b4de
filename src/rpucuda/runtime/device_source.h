#pragma once

#include <string>
#include <vector>

#include "array/device_model.h"
#include "core/isa.h"
#include "noise_models/noise_model_params.h"
#include "runtime/compilations.h"
#include "runtime/model_source.h"

// Device and noise models from source, at run time: the machine's C++ compiler compiles a text like
// the headers in devices/ or noise_models/ to a shared object, which is loaded and registered.
//
//   registerDeviceSource({text});
//   config.device = DeviceParams::read(Value(Value::Map{{"model", "MyStep"}}), "device");
//
// The text is code, and runs with the rights of the user who runs the program.

namespace pulsora {

/// The model for registerDevice(), compiled for the best instruction set of this machine or taken
/// from the cache (runtime/plugin_cache.h), and loaded for good. Its sourceHash is the SHA-256 of
/// the normalised text. With PULSORA_COMPILE=never in the environment nothing is compiled.
///
/// ConfigError for a bad text, cache folder or limit (PULSORA_COMPILE_SECONDS,
/// PULSORA_COMPILE_GIGABYTES); CompilerNotFound if the model is not in the cache and no compiler
/// may be used; CompileError, with the compiler's messages, if it fails, and if the text includes a
/// file other than headers of Pulsora and of the system; CompileInterrupted if SIGINT arrives
/// meanwhile.
DeviceModel deviceModelFrom(const ModelSource &source);

/// Makes and registers the model, and returns the registered model; an existing model if it has the
/// same name and text. ConfigError if another model has that name.
const DeviceModel &registerDeviceSource(const ModelSource &source);

/// The registered model of that name and text, or null. ConfigError if another model has that name.
const DeviceModel *registeredModelOf(const ModelSource &source);

/// Noise models likewise; registerNoiseModel() takes the place of registerDevice().
NoiseModel noiseModelFrom(const ModelSource &source);
const NoiseModel &registerNoiseSource(const ModelSource &source);
const NoiseModel *registeredNoiseModelOf(const ModelSource &source);

/// Compiles the model into the cache folder for later processes, on this machine or others that
/// share the folder and can execute `isa`, and returns the path of the file. Errors like
/// deviceModelFrom(); CompileError also if nothing can be stored.
std::string compileAhead(const ModelSource &source, Isa isa = bestIsa());

/// Compiles the model's kernels for GPUs of an architecture such as "sm_90" into the cache folder,
/// by NVRTC, and returns the paths of the files. No GPU is needed. ConfigError for an architecture
/// that NVRTC does not know; other errors like compileAhead().
std::vector<std::string> compileAheadForGpu(const ModelSource &source, const std::string &arch);

}  // namespace pulsora
