#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/isa.h"

namespace pulsora {

/// A folder for this process alone (mode 0700) in $TMPDIR or /tmp, removed with what is in it.
class PrivateFolder {
 public:
  /// std::filesystem::filesystem_error if it cannot be made.
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder &) = delete;
  PrivateFolder &operator=(const PrivateFolder &) = delete;
  const std::filesystem::path &path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The C++ compiler of this machine.
struct HostCompiler {
  std::vector<std::string> command;  ///< the program's path, and what $CXX has after its name
  std::string version;               ///< what it answers to --version
};

/// The compiler that $CXX names, else the first of c++, g++ and clang++ on PATH. CompilerNotFound,
/// saying what to install, if there is none, or none of that name. $CXX may hold flags after spaces.
HostCompiler findHostCompiler();

/// The options with which a plugin for `isa` is compiled: those on which equal bits rest, and those
/// of the instruction set, as the library itself was built with them.
std::vector<std::string> pluginOptions(Isa isa);

/// A device model as text.
struct PluginSource {
  std::string text;
  std::string name;  ///< of the struct in namespace pulsora
  std::string file;  ///< what the compiler calls the text in its messages
};

/// Compiles the model to a shared object, and returns its bytes. The compiler is started without a
/// shell, in a private folder. CompileError with what it said if it fails.
std::string compilePlugin(const HostCompiler &compiler, const PluginSource &source, Isa isa);

}  // namespace pulsora
