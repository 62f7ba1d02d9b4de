#include "runtime/nvrtc.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "runtime/shared_library.h"

namespace pulsora {
namespace {

namespace fs = std::filesystem;

constexpr const char *kMajors[] = {"13", "12"};  // usable versions, the preferred one first
constexpr const char *kInstall =
    "install one (pip install nvidia-cuda-nvrtc, or the CUDA toolkit; PyTorch with CUDA brings it "
    "too), or set PULSORA_NVRTC to its path";
constexpr size_t kLongestLog = 20000;

using Program = void *;

/// The functions of NVRTC; each returns 0 or the number of an error.
struct Nvrtc {
  SharedLibrary library;
  const char *(*errorString)(int);
  int (*version)(int *major, int *minor);
  int (*numArchs)(int *);
  int (*archs)(int *);
  int (*create)(Program *, const char *text, const char *name, int headers, const char *const *,
                const char *const *names);
  int (*destroy)(Program *);
  int (*addName)(Program, const char *expression);
  int (*compile)(Program, int options, const char *const *);
  int (*logSize)(Program, size_t *);
  int (*log)(Program, char *);
  int (*cubinSize)(Program, size_t *);
  int (*cubin)(Program, char *);
  int (*ptxSize)(Program, size_t *);
  int (*ptx)(Program, char *);
  int (*loweredName)(Program, const char *expression, const char **name);
  std::string versionText;
  std::vector<int> architectures;
};

std::vector<std::string> &packageFolders() {
  static std::vector<std::string> folders;
  return folders;
}

std::mutex &nvrtcLock() {
  static std::mutex lock;
  return lock;
}

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// Possible paths of NVRTC, in the order of nvrtcVersion().
std::vector<std::string> candidates() {
  if (const std::string own = variable("PULSORA_NVRTC"); !own.empty()) return {own};
  std::vector<std::string> folders = packageFolders();
  folders.emplace_back("");  // the system's, or an already loaded one
  for (const std::string &root :
       {variable("CUDA_HOME"), variable("CUDA_PATH"), std::string("/usr/local/cuda")}) {
    if (root.empty()) continue;
    folders.push_back(root + "/lib64");
    folders.push_back(root + "/lib");
  }
  std::vector<std::string> names;
  for (const char *major : kMajors) {
    const std::string name = std::string("libnvrtc.so.") + major;
    for (const std::string &folder : folders) {
      if (folder.empty() || fs::exists(folder + "/" + name))
        names.push_back(folder.empty() ? name : folder + "/" + name);
    }
  }
  return names;
}

std::string joined(const std::vector<std::string> &texts) {
  std::string list;
  for (const std::string &text : texts) list += (list.empty() ? "" : ", ") + text;
  return list;
}

/// Loads NVRTC's library of built-ins, which NVRTC does not find by itself outside the system's
/// folders.
void loadBuiltins(const std::string &library) {
  const fs::path folder = fs::path(library).parent_path();
  if (folder.empty()) return;
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    const std::string name = each->path().filename().string();
    constexpr std::string_view kStart = "libnvrtc-builtins.so.";
    const bool named = name.size() > kStart.size() && name.rfind(kStart, 0) == 0 &&
                       name.find_first_not_of("0123456789.", kStart.size()) == name.npos;
    if (named) SharedLibrary::open({each->path().string()});
  }
}

void check(const Nvrtc &nvrtc, int status, const char *what) {
  PULSORA_CHECK(CompileError, status == 0, "NVRTC (", nvrtc.library.name(), ") cannot ", what, ": ",
                nvrtc.errorString(status));
}

Nvrtc loadNvrtc() {
  Nvrtc n{};
  const std::vector<std::string> names = candidates();
  n.library = SharedLibrary::open(names);
  PULSORA_CHECK(CompilerNotFound, n.library, "there is no NVRTC to compile for a GPU: none of ",
                joined(names), " can be loaded (", n.library.problem(), "); ", kInstall);
  loadBuiltins(n.library.name());
  const SharedLibrary &l = n.library;
  l.find(n.errorString, "nvrtcGetErrorString");
  l.find(n.version, "nvrtcVersion");
  l.find(n.numArchs, "nvrtcGetNumSupportedArchs");
  l.find(n.archs, "nvrtcGetSupportedArchs");
  l.find(n.create, "nvrtcCreateProgram");
  l.find(n.destroy, "nvrtcDestroyProgram");
  l.find(n.addName, "nvrtcAddNameExpression");
  l.find(n.compile, "nvrtcCompileProgram");
  l.find(n.logSize, "nvrtcGetProgramLogSize");
  l.find(n.log, "nvrtcGetProgramLog");
  l.find(n.cubinSize, "nvrtcGetCUBINSize");
  l.find(n.cubin, "nvrtcGetCUBIN");
  l.find(n.ptxSize, "nvrtcGetPTXSize");
  l.find(n.ptx, "nvrtcGetPTX");
  l.find(n.loweredName, "nvrtcGetLoweredName");
  PULSORA_CHECK(CompilerNotFound,
                n.errorString && n.version && n.numArchs && n.archs && n.create && n.destroy &&
                    n.addName && n.compile && n.logSize && n.log && n.cubinSize && n.cubin &&
                    n.ptxSize && n.ptx && n.loweredName,
                l.name(), " is no NVRTC of CUDA 12 or 13; ", kInstall);
  int major = 0;
  int minor = 0;
  check(n, n.version(&major, &minor), "tell its version");
  n.versionText = message(major, ".", minor);
  int count = 0;
  check(n, n.numArchs(&count), "tell its architectures");
  n.architectures.resize(static_cast<size_t>(count));
  check(n, n.archs(n.architectures.data()), "tell its architectures");
  std::sort(n.architectures.begin(), n.architectures.end());
  return n;
}

/// NVRTC, found once; searched again on each call while there is none.
const Nvrtc &nvrtc() {
  const std::lock_guard<std::mutex> lock(nvrtcLock());
  static const Nvrtc found = loadNvrtc();
  return found;
}

struct OwnedProgram {
  const Nvrtc &nvrtc;
  Program program = nullptr;

  explicit OwnedProgram(const Nvrtc &n) : nvrtc(n) {}
  ~OwnedProgram() { nvrtc.destroy(&program); }
  OwnedProgram(const OwnedProgram &) = delete;
  OwnedProgram &operator=(const OwnedProgram &) = delete;

  /// Text or code: `size` gives its length and `get` its content.
  std::string content(int (*size)(Program, size_t *), int (*get)(Program, char *)) const {
    size_t length = 0;
    check(nvrtc, size(program, &length), "give what it made");
    std::string bytes(length, '\0');
    check(nvrtc, get(program, bytes.data()), "give what it made");
    return bytes;
  }
};

std::vector<const char *> pointers(const std::vector<std::string> &texts) {
  std::vector<const char *> list;
  list.reserve(texts.size());
  for (const std::string &text : texts) list.push_back(text.c_str());
  return list;
}

}  // namespace

void setNvrtcFolders(std::vector<std::string> folders) {
  const std::lock_guard<std::mutex> lock(nvrtcLock());
  packageFolders() = std::move(folders);
}

int architectureNumber(const std::string &arch) {
  constexpr std::string_view kStart = "sm_";
  const std::string number = arch.rfind(kStart, 0) == 0 ? arch.substr(kStart.size()) : "";
  PULSORA_CHECK(ConfigError,
                (number.size() == 2 || number.size() == 3) &&
                    number.find_first_not_of("0123456789") == number.npos,
                "arch is '", arch, "'; write the architecture of a GPU such as 'sm_90'");
  return std::stoi(number);
}

std::string nvrtcVersion() { return nvrtc().versionText; }

std::vector<std::string> nvrtcArchitectures() {
  std::vector<std::string> names;
  for (const int number : nvrtc().architectures) names.push_back(message("sm_", number));
  return names;
}

GpuBinary compileForGpu(const GpuSource &source, const std::string &arch) {
  const Nvrtc &n = nvrtc();
  const int wanted = architectureNumber(arch);
  const auto above = std::upper_bound(n.architectures.begin(), n.architectures.end(), wanted);
  PULSORA_CHECK(ConfigError, above != n.architectures.begin(), "arch is '", arch, "', but NVRTC ",
                n.versionText, " makes code for sm_", n.architectures.front(), " and newer alone");
  const int known = *(above - 1);
  const bool exact = known == wanted;
  std::vector<std::string> options = {
      message("--gpu-architecture=", exact ? "sm_" : "compute_", known)};
  options.insert(options.end(), source.options.begin(), source.options.end());
  std::vector<const char *> names;
  std::vector<const char *> texts;
  for (const auto &[name, text] : source.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  OwnedProgram made(n);
  check(n,
        n.create(&made.program, source.text.c_str(), source.file.c_str(),
                 static_cast<int>(names.size()), texts.data(), names.data()),
        "take a source");
  for (const std::string &kernel : source.kernels)
    check(n, n.addName(made.program, kernel.c_str()), "take the name of a kernel");
  const int status =
      n.compile(made.program, static_cast<int>(options.size()), pointers(options).data());
  if (status != 0) {
    std::string log = made.content(n.logSize, n.log).c_str();  // without the zero at its end
    if (log.size() > kLongestLog) log = log.substr(0, kLongestLog) + "\n[...]";
    throw CompileError(message(source.file, " does not compile for ", arch, ". NVRTC ",
                               n.versionText, " says (", n.errorString(status), "):\n", log));
  }
  GpuBinary binary;
  binary.code = exact ? made.content(n.cubinSize, n.cubin) : made.content(n.ptxSize, n.ptx);
  for (const std::string &kernel : source.kernels) {
    const char *lowered = nullptr;
    check(n, n.loweredName(made.program, kernel.c_str(), &lowered), "name a kernel");
    binary.names[kernel] = lowered;
  }
  return binary;
}

}  // namespace pulsora
