#include "runtime/device_source.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/sha256.h"
#include "runtime/compiler.h"
#include "runtime/embedded_headers.h"
#include "runtime/plugin_cache.h"
#include "runtime/plugin_model.h"

namespace RPU {
namespace {

#if defined(__x86_64__)
constexpr const char *kArchitecture = "x86_64";
#elif defined(__aarch64__)
constexpr const char *kArchitecture = "aarch64";
#else
constexpr const char *kArchitecture = "unknown";
#endif

/// What this process knows of compiled models. One at a time is looked up or made.
struct Known {
  std::recursive_mutex lock;                          // what takes a warning may ask for the counts
  std::map<std::string, const PluginTable *> loaded;  // by model key
  CompileCounts counts;
  std::set<std::string> told;
  std::function<void(const std::string &)> warn = [](const std::string &text) {
    std::cerr << "pulsora: " << text << '\n';
  };
};
Known &known() {
  static Known all;
  return all;
}

void warnOnce(const std::string &text) {
  if (known().told.insert(text).second) known().warn(text);
}

/// Whether PULSORA_COMPILE allows compilation.
bool mayCompile() {
  const char *value = std::getenv("PULSORA_COMPILE");
  const std::string text = value ? value : "";
  RPU_CHECK(ConfigError, text.empty() || text == "auto" || text == "never", "PULSORA_COMPILE is '",
            text, "'; set it to 'never' or 'auto', or leave it out");
  return text != "never";
}

/// All that a compiled model follows from, but for the compiler.
std::string modelKey(const DeviceSource &source, Isa isa) {
  Sha256 sum;
  for (const std::string &part :
       {std::string("plugin"), std::to_string(kPluginAbi), source.text, source.name,
        embeddedHeadersHash(), std::string(kArchitecture), std::string(isaName(isa))})
    sum.addText(part);
  for (const std::string &option : pluginOptions(isa)) sum.addText(option);
  return sum.hex();
}

std::string keyOf(const std::string &model, const HostCompiler &compiler) {
  Sha256 sum;
  for (const std::string &word : compiler.command) sum.addText(word);
  sum.addText(compiler.version);
  return model + "-" + sum.hex().substr(0, 16);
}

/// One way to a compiled model: from the cache, or by the compiler.
class Maker {
 public:
  Maker(const DeviceSource &source, Isa isa)
      : source_(source),
        isa_(isa),
        model_(modelKey(source, isa)),
        cache_(PluginCache::defaultFolder(), warnOnce) {
    if (!mayCompile()) {
      missing_ = "PULSORA_COMPILE is 'never'";
      return;
    }
    try {
      compiler_ = findHostCompiler();
      key_ = keyOf(model_, *compiler_);
    } catch (const CompilerNotFound &error) {
      missing_ = error.what();
      noCompiler_ = true;
    }
  }

  const std::string &model() const { return model_; }
  std::string path() const { return (cache_.folder() / (key_ + ".plugin")).string(); }

  /// What the cache has. Where nothing can be compiled, that of another compiler will do: it gives
  /// the same bits.
  std::optional<std::string> stored() {
    return compiler_ ? cache_.read(key_) : cache_.readAny(model_);
  }

  /// Calls use(bytes) with the compiled model.
  template <class Use>
  void make(const Use &use) {
    if (useStored(use)) return;
    const HostCompiler &compiler = requireCompiler();
    const PluginCache::Lock lock(cache_, key_);
    if (useStored(use)) return;  // another process made it meanwhile
    const std::string bytes =
        compilePlugin(compiler, {source_.text, source_.name, source_.file}, isa_);
    ++known().counts.compiled;
    use(bytes);
    cache_.write(key_, bytes);
  }

 private:
  template <class Use>
  bool useStored(const Use &use) {
    const std::optional<std::string> bytes = stored();
    if (!bytes) return false;
    try {
      use(*bytes);
    } catch (const CompileError &error) {
      if (!compiler_) throw;
      cache_.drop(key_, message("cannot be used: ", error.what()));
      return false;
    }
    ++known().counts.fromDisk;
    return true;
  }

  const HostCompiler &requireCompiler() const {
    if (compiler_) return *compiler_;
    const std::string text =
        message("the device model '", source_.name, "' is not among the compiled ones in ",
                cache_.folder().string(), " for the instruction set ", isaName(isa_),
                ", and cannot be compiled: ", missing_,
                "; `pulsora compile` puts it there, on a machine that can and shares the folder");
    if (noCompiler_) throw CompilerNotFound(text);
    throw CompileError(text);
  }

  const DeviceSource &source_;
  Isa isa_;
  std::string model_;
  PluginCache cache_;
  std::optional<HostCompiler> compiler_;
  std::string key_;
  std::string missing_;
  bool noCompiler_ = false;
};

}  // namespace

CompileCounts compileCounts() {
  const std::lock_guard<std::recursive_mutex> lock(known().lock);
  return known().counts;
}

void setCompileWarnings(std::function<void(const std::string &)> warn) {
  const std::lock_guard<std::recursive_mutex> lock(known().lock);
  known().warn = std::move(warn);
}

DeviceSource normalised(DeviceSource source) {
  std::string text;
  for (size_t i = 0; i < source.text.size(); ++i) {
    const bool windows =
        source.text[i] == '\r' && i + 1 < source.text.size() && source.text[i + 1] == '\n';
    if (!windows) text += source.text[i];
  }
  source.text = std::move(text);
  if (source.name.empty()) {
    static const std::regex kNames("kName\\s*=\\s*\"([^\"]*)\"");
    std::set<std::string> names;
    for (std::sregex_iterator each(source.text.begin(), source.text.end(), kNames), end;
         each != end; ++each)
      names.insert((*each)[1]);
    std::string list;
    for (const std::string &name : names) list += (list.empty() ? "'" : ", '") + name + "'";
    RPU_CHECK(ConfigError, !names.empty(),
              "the source of a device model has no `static constexpr const char *kName = "
              "\"its name\";`; see examples/05_custom_device for what a model states");
    RPU_CHECK(ConfigError, names.size() == 1, "the source of a device model has the names ", list,
              "; say which struct is meant by name=");
    source.name = *names.begin();
  }
  static const std::regex kName("[A-Z][A-Za-z0-9]*");
  RPU_CHECK(ConfigError, std::regex_match(source.name, kName), "name is '", source.name,
            "'; the name of a device model is that of its struct, begins with a capital letter and "
            "has letters and digits alone, such as MyStep");
  return source;
}

DeviceModel deviceModelFrom(const DeviceSource &given) {
  const DeviceSource source = normalised(given);
  const Isa isa = bestIsa();
  const std::lock_guard<std::recursive_mutex> lock(known().lock);
  const PluginTable *&table = known().loaded[modelKey(source, isa)];
  if (table) {
    ++known().counts.fromMemory;
  } else {
    Maker(source, isa).make([&](const std::string &bytes) {
      table = &loadPlugin(bytes, source.name, isa);
    });
  }
  DeviceModel model = modelOf(*table);
  model.source = source.text;
  model.sourceHash = sha256(source.text);
  return model;
}

const DeviceModel *registeredModelOf(const DeviceSource &given) {
  const DeviceSource source = normalised(given);
  for (const DeviceModel &model : deviceModels()) {
    if (model.name != source.name) continue;
    RPU_CHECK(ConfigError, !model.source.empty(), "there is a built-in device model '", model.name,
              "'; give the struct of the source another name");
    RPU_CHECK(ConfigError, model.source == source.text, "there is a device model '", model.name,
              "' from another source already (SHA-256 ", model.sourceHash,
              "); give the struct another name, or start a new process");
    return &model;
  }
  return nullptr;
}

const DeviceModel &registerDeviceSource(const DeviceSource &source) {
  if (const DeviceModel *model = registeredModelOf(source)) {
    const std::lock_guard<std::recursive_mutex> lock(known().lock);
    ++known().counts.fromMemory;
    return *model;
  }
  return registerDevice(deviceModelFrom(source));
}

std::string compileAhead(const DeviceSource &given, Isa isa) {
  const DeviceSource source = normalised(given);
  const std::lock_guard<std::recursive_mutex> lock(known().lock);
  Maker maker(source, isa);
  maker.make([](const std::string &) {});
  RPU_CHECK(CompileError, maker.stored(), "the compiled device model '", source.name,
            "' cannot be stored in the cache folder; name another by PULSORA_CACHE_DIR");
  return maker.path();
}

}  // namespace RPU
