#include "runtime/compilations.h"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/check.h"
#include "runtime/compile_limits.h"
#include "runtime/plugin_cache.h"
#include "storage/sha256.h"

namespace pulsora {
namespace {

/// The compilations of this process. One at a time is looked up or made.
struct Known {
  std::mutex lock;
  std::set<std::string> told;
  std::atomic<uint64_t> compiled{0};
  std::atomic<uint64_t> fromDisk{0};
  std::atomic<uint64_t> fromMemory{0};
  std::function<void(const std::string &)> warn = [](const std::string &text) {
    std::cerr << "pulsora: " << text << '\n';
  };
};
Known &known() {
  static Known all;
  return all;
}

/// Runs work(warn) under the lock. Warnings are passed on after the lock is released, because their
/// receiver may wait for a thread that waits for the lock.
template <class Work>
void alone(const Work &work) {
  std::vector<std::string> warnings;
  std::exception_ptr failed;
  {
    const std::lock_guard<std::mutex> lock(known().lock);
    try {
      work([&](const std::string &text) {
        if (known().told.insert(text).second) warnings.push_back(text);
      });
    } catch (...) {
      failed = std::current_exception();
    }
  }
  for (const std::string &text : warnings) known().warn(text);
  if (failed) std::rethrow_exception(failed);
}

/// Whether PULSORA_COMPILE allows compilation.
bool mayCompile() {
  const char *value = std::getenv("PULSORA_COMPILE");
  const std::string text = value ? value : "";
  PULSORA_CHECK(ConfigError, text.empty() || text == "auto" || text == "never",
                "PULSORA_COMPILE is '", text, "'; set it to 'never' or 'auto', or leave it out");
  return text != "never";
}

/// Gets the result of a Compilation from the cache or by the compiler.
class Maker {
 public:
  Maker(Compilation &compilation, PluginCache::Warn warn)
      : compilation_(compilation),
        model_(compilation.key()),
        cache_(PluginCache::defaultFolder(), std::move(warn)) {
    if (!mayCompile()) {
      missing_ = "PULSORA_COMPILE is 'never'";
      return;
    }
    static_cast<void>(compileLimits());  // bad limits are refused before anything is done
    try {
      key_ = model_ + "-" + sha256(compilation.compiler()).substr(0, 16);
    } catch (const CompilerNotFound &error) {
      missing_ = error.what();
    }
  }

  std::string path() const { return (cache_.folder() / (key_ + ".plugin")).string(); }

  std::optional<std::string> stored() {
    return key_.empty() ? cache_.readAny(model_) : cache_.read(key_);
  }

  template <class Use>
  void make(const Use &use) {
    if (useStored(use)) return;
    requireCompiler();
    const PluginCache::Lock lock(cache_, key_);
    if (useStored(use)) return;  // compiled by another process meanwhile
    const std::string bytes = compilation_.compile();
    ++known().compiled;
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
      if (key_.empty()) throw;
      cache_.drop(key_, message("cannot be used: ", error.what()));
      return false;
    }
    ++known().fromDisk;
    return true;
  }

  void requireCompiler() const {
    if (!key_.empty()) return;
    const Compilation::Name name = compilation_.name();
    const std::string folder =
        cache_.folder().empty()
            ? "a folder (none of PULSORA_CACHE_DIR, XDG_CACHE_HOME and HOME is set)"
            : cache_.folder().string();
    throw CompilerNotFound(
        message(name.what, " is not among the compiled ones in ", folder, " for ", name.target,
                ", and cannot be compiled: ", missing_,
                "; `pulsora compile` puts it there, on a machine that can and shares the folder"));
  }

  Compilation &compilation_;
  std::string model_;
  PluginCache cache_;
  std::string key_;  // empty if there is no compiler, or none may be used
  std::string missing_;
};

}  // namespace

CompileCounts compileCounts() { return {known().compiled, known().fromDisk, known().fromMemory}; }

void setCompileWarnings(std::function<void(const std::string &)> warn) {
  known().warn = std::move(warn);
}

void withCompiled(Compilation &compilation, const std::function<void(const std::string &)> &use) {
  alone([&](const PluginCache::Warn &warn) { Maker(compilation, warn).make(use); });
}

std::string compiledFile(Compilation &compilation) {
  std::string path;
  alone([&](const PluginCache::Warn &warn) {
    Maker maker(compilation, warn);
    maker.make([](const std::string &) {});
    PULSORA_CHECK(CompileError, maker.stored(), compilation.name().what,
                  ", compiled, cannot be stored in the cache folder; name another by "
                  "PULSORA_CACHE_DIR");
    path = maker.path();
  });
  return path;
}

void countFromMemory() { ++known().fromMemory; }

}  // namespace pulsora
