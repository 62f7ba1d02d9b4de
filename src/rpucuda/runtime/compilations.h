#pragma once

#include <cstdint>
#include <functional>
#include <string>

// What is compiled at run time is kept in a folder (runtime/plugin_cache.h), so that each thing is
// compiled once for all processes.

namespace pulsora {

/// How often a compiled model, or a kernel of one for a GPU, was made, found in the cache folder, or
/// known to this process.
struct CompileCounts {
  uint64_t compiled = 0;
  uint64_t fromDisk = 0;
  uint64_t fromMemory = 0;
};
CompileCounts compileCounts();

/// Who is told that a cache folder cannot be used; at first std::cerr. The same text comes once. To
/// be set before anything is compiled.
void setCompileWarnings(std::function<void(const std::string &)> warn);

/// One thing to be compiled, and how.
class Compilation {
 public:
  virtual ~Compilation() = default;
  /// What it is and for what, for messages: {"the device model 'X'", "the instruction set V4"}.
  struct Name {
    std::string what;
    std::string target;
  };
  virtual Name name() const = 0;
  /// SHA-256 of all that it follows from, but for the compiler.
  virtual std::string key() const = 0;
  /// Finds the compiler, and returns all that tells it from others. CompilerNotFound if there is
  /// none.
  virtual std::string compiler() = 0;
  /// Compiles; after compiler(). CompileError if that fails.
  virtual std::string compile() = 0;
};

/// Calls use(bytes) with what was compiled: from the cache, or by the compiler. Where nothing can be
/// compiled, or PULSORA_COMPILE is "never", what another compiler made will do: it gives the same
/// bits. If `use` throws a CompileError about bytes from the cache, these are made anew.
///
/// CompilerNotFound if there is none, and no compiler that may be used; CompileError if compilation
/// fails; ConfigError for a bad cache folder. One thread at a time; `use` must not wait for another that compiles.
void withCompiled(Compilation &compilation, const std::function<void(const std::string &)> &use);

/// Compiles into the cache folder, unless it is there, and returns the path of the file. Errors as of
/// withCompiled(); CompileError also if nothing can be stored.
std::string compiledFile(Compilation &compilation);

/// Counts that a compiled model was known to this process.
void countFromMemory();

}  // namespace pulsora
