#include "runtime/device_source.h"

#include <map>
#include <mutex>
#include <set>
#include <string_view>
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

/// Models that this process has loaded, by the keys of their compilations.
struct Loaded {
  std::recursive_mutex lock;  // recursive: a receiver of warnings may load another model
  std::map<std::string, DeviceModel> models;
};
Loaded &loaded() {
  static Loaded all;
  return all;
}

/// A plugin by the machine's C++ compiler.
class PluginCompilation : public Compilation {
 public:
  PluginCompilation(const DeviceSource &source, Isa isa) : source_(source), isa_(isa) {}

  Name name() const override {
    return {message("the device model '", source_.name, "'"),
            message("the instruction set ", isaName(isa_))};
  }
  std::string key() const override {
    Sha256 sum;
    for (const std::string &part :
         {std::string("plugin of its text alone"), std::to_string(kPluginAbi), source_.text,
          source_.name, embeddedHeadersHash(), std::string(kArchitecture),
          std::string(isaName(isa_))})
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
  std::string compile() override {
    return compilePlugin(compiler_, {source_.text, source_.name, source_.file}, isa_);
  }

 private:
  const DeviceSource &source_;
  Isa isa_;
  HostCompiler compiler_;
};

constexpr size_t kLongestName = 100;

/// Whether the text is a capital letter, then letters and digits, kLongestName at most.
bool isPlainName(const std::string &text) {
  const auto isIn = [](char letter, char first, char last) {
    return letter >= first && letter <= last;
  };
  bool plain = !text.empty() && text.size() <= kLongestName && isIn(text[0], 'A', 'Z');
  for (const char each : text)
    plain = plain && (isIn(each, 'A', 'Z') || isIn(each, 'a', 'z') || isIn(each, '0', '9'));
  return plain;
}

/// A text for messages, cut where it is longer than a name.
std::string shortened(const std::string &text) {
  return text.size() <= kLongestName ? text : text.substr(0, kLongestName) + "[...]";
}

constexpr const char *kSpaces = " \t\n\v\f\r";

/// The texts NAME of all `kName = "NAME"`.
std::set<std::string> namesIn(const std::string &text) {
  constexpr std::string_view kWord = "kName";
  std::set<std::string> names;
  // Position behind spaces and `letter`, or npos.
  const auto behind = [&](size_t at, char letter) {
    at = text.find_first_not_of(kSpaces, at);
    return at != text.npos && text[at] == letter ? at + 1 : text.npos;
  };
  for (size_t at = text.find(kWord); at != text.npos; at = text.find(kWord, at)) {
    at += kWord.size();
    size_t first = behind(at, '=');
    if (first != text.npos) first = behind(first, '"');
    if (first == text.npos) continue;
    const size_t end = text.find('"', first);
    if (end == text.npos) break;
    names.insert(text.substr(first, end - first));
    at = end + 1;
  }
  return names;
}

}  // namespace

DeviceSource normalised(DeviceSource source) {
  std::string text;
  for (size_t i = 0; i < source.text.size(); ++i) {
    const bool windows =
        source.text[i] == '\r' && i + 1 < source.text.size() && source.text[i + 1] == '\n';
    if (!windows) text += source.text[i];
  }
  source.text = std::move(text);
  if (source.name.empty()) {
    const std::set<std::string> names = namesIn(source.text);
    std::string list;
    for (const std::string &name : names)
      list += (list.empty() ? "'" : ", '") + shortened(name) + "'";
    PULSORA_CHECK(ConfigError, !names.empty(),
                  "the source of a device model has no `static constexpr const char *kName = "
                  "\"its name\";`; see examples/05_custom_device for what a model states");
    PULSORA_CHECK(ConfigError, names.size() == 1, "the source of a device model has the names ",
                  list, "; say which struct is meant by name=");
    source.name = *names.begin();
  }
  PULSORA_CHECK(
      ConfigError, isPlainName(source.name), "name is '", shortened(source.name),
      "'; the name of a device model is that of its struct, begins with a capital letter and "
      "has letters and digits alone, 100 at most, such as MyStep");
  return source;
}

DeviceModel deviceModelFrom(const DeviceSource &given) {
  const DeviceSource source = normalised(given);
  const Isa isa = bestIsa();
  PluginCompilation plugin(source, isa);
  const Interrupts interrupts;
  const std::lock_guard<std::recursive_mutex> lock(loaded().lock);
  DeviceModel &model = loaded().models[plugin.key()];
  if (!model.name.empty()) {
    countFromMemory();
    return model;
  }
  DeviceModel made;
  withCompiled(plugin, [&](const std::string &bytes) {
    made = pluginModel(loadPlugin(bytes, source.name, isa), launcherOf(source));
  });
  PULSORA_CHECK(ConfigError, made.name == source.name, "the device model ", source.name,
                " has kName \"", made.name, "\"; give it the name of its struct");
  made.source = source.text;
  made.sourceHash = sha256(source.text);
  return model = std::move(made);
}

const DeviceModel *registeredModelOf(const DeviceSource &given) {
  const DeviceSource source = normalised(given);
  for (const DeviceModel &model : deviceModels()) {
    if (model.name != source.name) continue;
    PULSORA_CHECK(ConfigError, !model.source.empty(), "there is a built-in device model '",
                  model.name, "'; give the struct of the source another name");
    PULSORA_CHECK(ConfigError, model.source == source.text, "there is a device model '", model.name,
                  "' from another source already (SHA-256 ", model.sourceHash,
                  "); give the struct another name, or start a new process");
    return &model;
  }
  return nullptr;
}

const DeviceModel &registerDeviceSource(const DeviceSource &source) {
  if (const DeviceModel *model = registeredModelOf(source)) {
    countFromMemory();
    return *model;
  }
  return registerDevice(deviceModelFrom(source));
}

std::string compileAhead(const DeviceSource &given, Isa isa) {
  const DeviceSource source = normalised(given);
  PluginCompilation plugin(source, isa);
  const Interrupts interrupts;
  return compiledFile(plugin);
}

std::vector<std::string> compileAheadForGpu(const DeviceSource &given, const std::string &arch) {
  return compileModelKernels(normalised(given), arch);
}

}  // namespace pulsora
