#pragma once

#include <string>
#include <vector>

namespace pulsora {

/// The kind of model that a text describes.
enum class ModelKind {
  Device,  ///< cells of a pulsed array (devices/)
  Noise,   ///< a programmed device (noise_models/)
};

/// A model as text, which defines one struct in namespace pulsora; see examples/05_custom_device
/// and examples/27_custom_noise_model. It may include headers of the rooms up to array, and of
/// noise_models, as <pulsora/room/name.h> or "room/name.h", and of the system.
struct ModelSource {
  std::string text;
  std::string name = {};  ///< of the struct; if empty, the only kName in the text
  std::string file = {};  ///< name of the text in the compiler's messages
  ModelKind kind = ModelKind::Device;
};
using DeviceSource = ModelSource;

/// How the texts of a kind are compiled, and spoken of.
struct ModelKindFacts {
  const char *what;                 ///< "device model"
  const char *example;              ///< where a whole text stands
  const char *registered;           ///< the function of Python that registers one
  const char *plugin;               ///< the header that makes a plugin of it
  const char *macro;                ///< of that header
  const char *kernels;              ///< the header of its GPU kernels
  std::vector<std::string> kernel;  ///< names of the kernels
};
const ModelKindFacts &factsOf(ModelKind kind);

/// "the device model 'X'"
std::string described(const ModelSource &source);

/// The source with the model's name filled in, and Unix line ends. ConfigError if the text has no
/// name or several.
ModelSource normalised(ModelSource source);

}  // namespace pulsora
