#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/compile_limits.h"

namespace pulsora {

/// How a program ended.
struct Outcome {
  int status = 0;      ///< its exit status; -1 if a signal ended it
  std::string output;  ///< of stdout and stderr
  std::string note;    ///< a sentence about a limit that it seems to have met, or empty
};

/// Runs a program, without a shell, within limits of time and memory. It reads nothing, its output
/// and temporary files are in `folder`, its messages are in English, and variables that would add
/// folders of headers are not in its environment.
///
/// CompileError if it cannot be started or takes too long, CompileInterrupted if SIGINT arrives;
/// the program and all that it started are ended then.
Outcome runProgram(const std::vector<std::string> &command, const std::filesystem::path &folder,
                   const CompileLimits &limits);

/// Content of a file; empty if it cannot be read.
std::string readAll(const std::filesystem::path &path);

}  // namespace pulsora
