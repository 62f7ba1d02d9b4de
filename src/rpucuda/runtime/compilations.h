#pragma once

#include <cstdint>
#include <functional>
#include <string>

// Results of compilations at run time are stored in a cache folder (runtime/plugin_cache.h), so
// that everything is compiled once for all processes.

namespace pulsora {

/// Number of compiled models and GPU kernels of models that were compiled, found in the cache
/// folder, or already in this process.
struct CompileCounts {
  uint64_t compiled = 0;
  uint64_t fromDisk = 0;
  uint64_t fromMemory = 0;
};
CompileCounts compileCounts();

/// Sets the receiver of warnings that a cache folder cannot be used; std::cerr by default. The same
/// text is passed on once. To be called before anything is compiled.
void setCompileWarnings(std::function<void(const std::string &)> warn);

/// The interface of one compilation: a source and its compiler.
class Compilation {
 public:
  virtual ~Compilation() = default;
  /// Name and target for messages: {"the device model 'X'", "the instruction set V4"}.
  struct Name {
    std::string what;
    std::string target;
  };
  virtual Name name() const = 0;
  /// SHA-256 of everything that the result depends on, except the compiler.
  virtual std::string key() const = 0;
  /// Finds the compiler, and returns text that identifies it. CompilerNotFound if there is none.
  virtual std::string compiler() = 0;
  /// Compiles, after a call of compiler(). CompileError if compilation fails.
  virtual std::string compile() = 0;
};

/// Calls use(bytes) with the compiled bytes, from the cache or the compiler. Without a compiler, or
/// if PULSORA_COMPILE is "never", bytes that another compiler made are used: they give the same
/// results. If `use` throws a CompileError for bytes from the cache, they are compiled again.
///
/// CompilerNotFound if nothing is cached and no compiler may be used; CompileError if compilation
/// fails; ConfigError for a bad cache folder or limit; CompileInterrupted if SIGINT arrives while
/// the C++ compiler runs or another process compiles the same. Runs in one thread at a time; `use`
/// must not wait for another thread that compiles.
void withCompiled(Compilation &compilation, const std::function<void(const std::string &)> &use);

/// Compiles into the cache folder, unless cached, and returns the path of the file. Errors like
/// withCompiled(); CompileError also if nothing can be stored.
std::string compiledFile(Compilation &compilation);

/// Adds one to CompileCounts::fromMemory.
void countFromMemory();

}  // namespace pulsora
