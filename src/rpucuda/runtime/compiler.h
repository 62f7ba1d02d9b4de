#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/isa.h"

namespace pulsora {

/// A folder for this process alone (mode 0700) in $TMPDIR or /tmp, removed with its contents.
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
  std::vector<std::string> command;  ///< the program's path, and flags in $CXX
  std::string version;               ///< output of --version
};

/// The compiler that $CXX names, otherwise the first of c++, g++ and clang++ on PATH.
/// CompilerNotFound, with instructions to install one, if it does not exist. $CXX may hold flags
/// after spaces.
HostCompiler findHostCompiler();

/// The compiler options of a plugin for `isa`, as in the library's own build: options that equal
/// bits depend on, and options of the instruction set.
std::vector<std::string> pluginOptions(Isa isa);

/// A device model as text.
struct PluginSource {
  std::string text;
  std::string name;  ///< of the struct in namespace pulsora
  std::string file;  ///< name of the text in the compiler's messages
};

/// Compiles the model to a shared object, and returns its bytes. The compiler is started without a
/// shell, in a private folder. CompileError with the compiler's messages if it fails.
std::string compilePlugin(const HostCompiler &compiler, const PluginSource &source, Isa isa);

}  // namespace pulsora
