#pragma once

#include <map>
#include <string>
#include <vector>

// NVRTC, CUDA's compiler as a library. It is neither linked nor needed until something is compiled
// for a GPU.

namespace pulsora {

/// CUDA C++ to be compiled.
struct GpuSource {
  std::string text;
  std::string file = "program.cu";  ///< what the compiler calls the text in its messages
  /// What the text may include, by the names that it uses. Files are not looked for.
  std::map<std::string, std::string> headers = {};
  /// The kernels that are wanted, as expressions of C++: "add", "scale<float>". Templates are
  /// compiled for these alone.
  std::vector<std::string> kernels = {};
  std::vector<std::string> options = {};  ///< for NVRTC, beside the architecture's
};

/// Compiled kernels.
struct GpuBinary {
  std::string code;  ///< a cubin, or PTX where NVRTC does not know the architecture
  std::map<std::string, std::string> names;  ///< of each wanted kernel within the code
};

/// Folders in which libnvrtc is looked for before all others: Python names those of its packages.
void setNvrtcFolders(std::vector<std::string> folders);

/// What tells the NVRTC that is used from others: its version. It is the first of: $PULSORA_NVRTC
/// (a path), those in the folders of setNvrtcFolders(), one that the process has loaded, the
/// system's, and those of $CUDA_HOME, $CUDA_PATH and /usr/local/cuda. CompilerNotFound, naming what
/// to install, if there is none.
std::string nvrtcVersion();

/// The architectures that it makes code for, such as "sm_90", in rising order.
std::vector<std::string> nvrtcArchitectures();

/// 90 of "sm_90"; ConfigError for anything else.
int architectureNumber(const std::string &arch);

/// Compiles for GPUs of architecture `arch`, such as "sm_90". For one that is newer than NVRTC the
/// result is PTX for the newest it knows, which the driver compiles. No GPU is needed.
///
/// CompilerNotFound if there is no NVRTC; ConfigError for an architecture that is none, or too old;
/// CompileError with the log, which has the file and line, if it does not compile.
GpuBinary compileForGpu(const GpuSource &source, const std::string &arch);

}  // namespace pulsora
