#include "runtime/device_source.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "runtime/compiler.h"
#include "runtime/embedded_headers.h"
#include "runtime/interrupts.h"
#include "runtime/model_kernels.h"
#include "runtime/plugin_model.h"
#include "storage/sha256.h"

namespace pulsora {
namespace {

#if defined(__x86_64__)
constexpr const char *kArchitecture = "x86_64";
#elif defined(__aarch64__)
constexpr const char *kArchitecture = "aarch64";
#else
constexpr const char *kArchitecture = "unknown";
#endif

/// Models of one type that this process has loaded, by the keys of their compilations.
template <class Model>
struct Loaded {
  std::recursive_mutex lock;  // recursive: a receiver of warnings may load another model
  std::map<std::string, Model> models;

  static Loaded &all() {
    static Loaded loaded;
    return loaded;
  }
};

/// A plugin by the machine's C++ compiler.
class PluginCompilation : public Compilation {
 public:
  PluginCompilation(const ModelSource &source, Isa isa) : source_(source), isa_(isa) {}

  Name name() const override {
    return {described(source_), message("the instruction set ", isaName(isa_))};
  }
  std::string key() const override {
    Sha256 sum;
    for (const std::string &part :
         {std::string("plugin of its text alone"), std::string(factsOf(source_.kind).macro),
          std::to_string(kPluginAbi), source_.text, source_.name, embeddedHeadersHash(),
          std::string(kArchitecture), std::string(isaName(isa_))})
      sum.addText(part);
    for (const std::string &option : pluginOptions(isa_)) sum.addText(option);
    return sum.hex();
  }
  std::string compiler() override {
    compiler_ = findHostCompiler();
    std::string text;
    for (const std::string &word : compiler_.command) text += word + '\n';
    return text + compiler_.version;
  }
  std::string compile() override { return compilePlugin(compiler_, source_, isa_); }

 private:
  const ModelSource &source_;
  Isa isa_;
  HostCompiler compiler_;
};

/// The compiled and loaded model; `make` makes it from the bytes of its plugin.
template <class Model, class Make>
Model modelFrom(const ModelSource &source, const Make &make) {
  const Isa isa = bestIsa();
  PluginCompilation plugin(source, isa);
  const Interrupts interrupts;
  Loaded<Model> &loaded = Loaded<Model>::all();
  const std::lock_guard<std::recursive_mutex> lock(loaded.lock);
  Model &model = loaded.models[plugin.key()];
  if (!model.name.empty()) {
    countFromMemory();
    return model;
  }
  Model made;
  withCompiled(plugin, [&](const std::string &bytes) { made = make(bytes, isa); });
  PULSORA_CHECK(ConfigError, made.name == source.name, "the ", factsOf(source.kind).what, " ",
                source.name, " has kName \"", made.name, "\"; give it the name of its struct");
  made.source = source.text;
  made.sourceHash = sha256(source.text);
  return model = std::move(made);
}

/// The model of that name and text among registered ones, or null.
template <class Models>
auto *modelOf(const Models &models, const ModelSource &source) {
  const char *what = factsOf(source.kind).what;
  const typename Models::value_type *found = nullptr;
  for (const auto &model : models) {
    if (model.name != source.name) continue;
    PULSORA_CHECK(ConfigError, !model.source.empty(), "there is a built-in ", what, " '",
                  model.name, "'; give the struct of the source another name");
    PULSORA_CHECK(ConfigError, model.source == source.text, "there is a ", what, " '", model.name,
                  "' from another source already (SHA-256 ", model.sourceHash,
                  "); give the struct another name, or start a new process");
    found = &model;
  }
  return found;
}

ModelSource ofKind(ModelSource source, ModelKind kind) {
  source.kind = kind;
  return normalised(std::move(source));
}

}  // namespace

DeviceModel deviceModelFrom(const ModelSource &given) {
  const ModelSource source = ofKind(given, ModelKind::Device);
  return modelFrom<DeviceModel>(source, [&](const std::string &bytes, Isa isa) {
    return pluginModel(loadPlugin<PluginTable>(bytes, source, isa), launcherOf(source));
  });
}

NoiseModel noiseModelFrom(const ModelSource &given) {
  const ModelSource source = ofKind(given, ModelKind::Noise);
  return modelFrom<NoiseModel>(source, [&](const std::string &bytes, Isa isa) {
    return pluginNoiseModel(loadPlugin<NoisePluginTable>(bytes, source, isa), launcherOf(source));
  });
}

const DeviceModel *registeredModelOf(const ModelSource &given) {
  return modelOf(deviceModels(), ofKind(given, ModelKind::Device));
}

const NoiseModel *registeredNoiseModelOf(const ModelSource &given) {
  return modelOf(noiseModels(), ofKind(given, ModelKind::Noise));
}

const DeviceModel &registerDeviceSource(const ModelSource &source) {
  if (const DeviceModel *model = registeredModelOf(source)) {
    countFromMemory();
    return *model;
  }
  return registerDevice(deviceModelFrom(source));
}

const NoiseModel &registerNoiseSource(const ModelSource &source) {
  if (const NoiseModel *model = registeredNoiseModelOf(source)) {
    countFromMemory();
    return *model;
  }
  return registerNoiseModel(noiseModelFrom(source));
}

std::string compileAhead(const ModelSource &given, Isa isa) {
  const ModelSource source = normalised(given);
  PluginCompilation plugin(source, isa);
  const Interrupts interrupts;
  return compiledFile(plugin);
}

std::vector<std::string> compileAheadForGpu(const ModelSource &given, const std::string &arch) {
  return compileModelKernels(normalised(given), arch);
}

}  // namespace pulsora
