#pragma once

#include <string>
#include <vector>

#include "core/isa.h"
#include "runtime/model_source.h"

namespace pulsora {

/// The C++ compiler of this machine.
struct HostCompiler {
  std::vector<std::string> command;  ///< the program's path, and flags in $CXX
  std::string version;               ///< output of --version
};

/// The compiler that $CXX names, otherwise the first of c++, g++ and clang++ on PATH.
/// CompilerNotFound, with instructions to install one, if it does not exist. $CXX may hold flags
/// after spaces. CompileInterrupted at SIGINT.
HostCompiler findHostCompiler();

/// The compiler options of a plugin for `isa`, as in the library's own build: options that equal
/// bits depend on, and options of the instruction set.
std::vector<std::string> pluginOptions(Isa isa);

/// Compiles the model of a normalised source to a shared object, and returns its bytes. The
/// compiler is started without a shell, in a private folder, within the limits of the environment
/// (compileLimits()).
///
/// CompileError with the compiler's messages if it fails, and for an #include of a file that is
/// neither a header of Pulsora nor in the compiler's own folders of headers: compiled models are
/// found again by their text, so that changes of such a file would not be noticed.
/// CompileInterrupted at SIGINT.
std::string compilePlugin(const HostCompiler &compiler, const ModelSource &source, Isa isa);

}  // namespace pulsora
