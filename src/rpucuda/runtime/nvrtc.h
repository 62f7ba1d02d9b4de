#pragma once

#include <map>
#include <string>
#include <vector>

// NVRTC, CUDA's compiler as a library. It is not linked, but loaded when something is first
// compiled for a GPU.

namespace pulsora {

/// CUDA C++ to be compiled.
struct GpuSource {
  std::string text;
  std::string file = "program.cu";  ///< name of the text in the compiler's messages
  /// Texts of the headers that the text may include, by name. NVRTC also reads files: those that
  /// an #include names by an absolute path, and, without the option --no-source-include, those in
  /// the current folder.
  std::map<std::string, std::string> headers = {};
  /// The wanted kernels, as expressions of C++: "add", "scale<float>". Templates are compiled for
  /// these alone.
  std::vector<std::string> kernels = {};
  std::vector<std::string> options = {};  ///< for NVRTC, beside the architecture's
};

/// Compiled kernels.
struct GpuBinary {
  std::string code;  ///< a cubin, or PTX where NVRTC does not know the architecture
  std::map<std::string, std::string> names;  ///< names of the wanted kernels in the code
};

/// Sets folders in which libnvrtc is looked for first: Python passes the folders of its packages.
void setNvrtcFolders(std::vector<std::string> folders);

/// Version of the NVRTC in use. NVRTC is the first of: $PULSORA_NVRTC (a path), the folders of
/// setNvrtcFolders(), a library that the process has loaded, the system's, and the folders of
/// $CUDA_HOME, $CUDA_PATH and /usr/local/cuda. CompilerNotFound, naming what to install, if there
/// is none.
std::string nvrtcVersion();

/// The architectures that NVRTC makes code for, such as "sm_90", in rising order.
std::vector<std::string> nvrtcArchitectures();

/// 90 of "sm_90"; ConfigError for anything else.
int architectureNumber(const std::string &arch);

/// Compiles for GPUs of architecture `arch`, such as "sm_90". For an architecture newer than NVRTC
/// the result is PTX for the newest known one, which the driver compiles. No GPU is needed.
///
/// CompilerNotFound without NVRTC; ConfigError for a wrong or too old architecture; CompileError
/// with the log, which has file and line, if the text does not compile.
GpuBinary compileForGpu(const GpuSource &source, const std::string &arch);

}  // namespace pulsora
