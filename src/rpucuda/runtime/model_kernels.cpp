#include "runtime/model_kernels.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <utility>

#include "core/batched_launches.h"
#include "core/check.h"
#include "cuda/array/model_launches.h"
#include "runtime/compilations.h"
#include "runtime/cuda_driver.h"
#include "runtime/embedded_headers.h"
#include "runtime/gpu_program.h"
#include "runtime/nvrtc.h"
#include "storage/sha256.h"

namespace pulsora {
namespace {

using gpu::kModelKernels;

constexpr int kOldest = 80;  // oldest architecture, also of the built-in kernels

/// Options like nvcc's for the built-in models (cmake/numerics.cmake); unannotated functions, such
/// as fields(), are device functions.
const std::vector<std::string> &kernelOptions() {
  static const std::vector<std::string> kOptions = {
      "-std=c++17",         "--fmad=false",  "-DNDEBUG",
      "-default-device",    "-DRPU=pulsora", "-DRPU_HD=PULSORA_HD",  // see pluginOptions()
      "--no-source-include"};  // no files of the current folder
  return kOptions;
}

/// All headers that a model's text may include on a GPU.
const std::map<std::string, std::string> &kernelHeaders() {
  static const std::map<std::string, std::string> kHeaders = [] {
    std::map<std::string, std::string> headers;
    const auto refer = [&](const std::string &name, const std::string &path) {
      headers[name] = "#include \"" + path + "\"\n";
    };
    for (const EmbeddedHeader &header : embeddedHeaders()) {
      const std::string path = header.path;
      headers[path] = header.text;
      if (path.rfind("pulsora/", 0) != 0) refer("pulsora/" + path, path);
    }
    for (const char *name : {"cmath", "cstdint", "limits", "type_traits"})
      refer(name, message("runtime/device_std/", name, ".cuh"));
    // NVRTC has what these headers declare built in.
    for (const char *name : {"cstddef", "math.h", "stdint.h"})
      refer(name, "runtime/device_std/cstdint.cuh");
    return headers;
  }();
  return kHeaders;
}

/// The name of a kernel of a model, as an expression.
std::string kernelName(const ModelSource &source, int kernel) {
  if (source.kind == ModelKind::Noise)
    return message("&pulsora::gpu::realiseKernel<pulsora::", source.name, ">");
  return message("pulsora::gpu::codeOf<pulsora::", source.name, ", pulsora::gpu::ModelKernel::",
                 factsOf(source.kind).kernel.at(static_cast<size_t>(kernel)), ">()");
}

/// Compiles a kernel of a model by NVRTC. The result is the kernel's name in the code, a newline,
/// and the code.
class KernelCompilation : public Compilation {
 public:
  KernelCompilation(const ModelSource &source, int kernel, std::string arch)
      : source_(source),
        kernel_(kernel),
        code_(kernelName(source, kernel)),
        arch_(std::move(arch)) {}

  Name name() const override {
    return {
        message("the GPU kernel ", factsOf(source_.kind).kernel.at(static_cast<size_t>(kernel_)),
                " of ", described(source_)),
        arch_};
  }
  std::string key() const override {
    Sha256 sum;
    for (const std::string &part :
         {std::string("kernel"), source_.text, source_.name, embeddedHeadersHash(), arch_, code_})
      sum.addText(part);
    for (const std::string &option : kernelOptions()) sum.addText(option);
    return sum.hex();
  }
  std::string compiler() override { return "nvrtc " + nvrtcVersion(); }
  std::string compile() override {
    const int number = architectureNumber(arch_);
    PULSORA_CHECK(ConfigError, number >= kOldest, "arch is '", arch_, "'; ",
                  factsOf(source_.kind).what, "s run on sm_", int(kOldest), " and newer");
    GpuSource program;
    program.text = message(source_.text, "\n#include \"", factsOf(source_.kind).kernels, "\"\n");
    program.file = source_.file.empty() ? source_.name + ".h" : source_.file;
    program.headers = kernelHeaders();
    program.kernels = {code_};
    program.options = kernelOptions();
    const GpuBinary binary = compileForGpu(program, arch_);
    return binary.names.at(code_) + "\n" + binary.code;
  }

 private:
  const ModelSource &source_;
  int kernel_;
  std::string code_;
  std::string arch_;
};

/// Loads a kernel of a model onto a GPU.
GpuFunction loadedFunction(const ModelSource &source, int kernel, int device) {
  std::unique_ptr<const GpuFunction> found;
  KernelCompilation compilation(source, kernel, CudaDriver::get().architecture(device));
  withCompiled(compilation, [&](const std::string &bytes) {
    const size_t end = bytes.find('\n');
    PULSORA_CHECK(CompileError, end != bytes.npos, "the code has no name");
    const GpuProgram program(bytes.substr(end + 1), device);
    found = std::make_unique<const GpuFunction>(program.function(bytes.substr(0, end)));
  });
  return *found;
}

/// The kernels of one model that this process uses.
class ModelKernels {
 public:
  explicit ModelKernels(ModelSource source) : source_(std::move(source)) {
    launcher_ = {this, &launch, &clear, &multipliesBits};
  }
  const PluginLauncher &launcher() const { return launcher_; }

 private:
  static constexpr size_t kDevices = 64;

  static void launch(void *context, int32_t kernel, uint32_t blocks, uint32_t threads,
                     const void *const *arguments, const uint64_t *sizes, uint32_t count,
                     void *stream) {
    auto &self = *static_cast<ModelKernels *>(context);
    self.function(kernel).launchRaw({{blocks, 1, 1}, {threads, 1, 1}}, arguments, sizes, count,
                                    stream);
  }
  static void clear(void *, void *data, uint64_t bytes, void *stream) {
    BatchedLaunches::sendKept();
    const CudaDriver &driver = CudaDriver::get();
    driver.check(driver.fill(reinterpret_cast<CuPointer>(data), 0, bytes, stream), "clear memory");
  }
  static int32_t multipliesBits(void *) { return 1; }  // on kOldest and all later ones

  const GpuFunction &function(int32_t kernel) {
    const CudaDriver &driver = CudaDriver::get();
    const auto device = static_cast<size_t>(driver.currentDevice());
    PULSORA_CHECK(DeviceError, device < kDevices, "GPU ", device,
                  " cannot run models from source; use one below ", int(kDevices));
    std::atomic<const GpuFunction *> &ready = ready_[device][static_cast<size_t>(kernel)];
    const GpuFunction *found = ready.load();
    if (!found) {
      // Needs no lock: compilations run one at a time, and two threads that load the same kernel do
      // no harm. Never deleted.
      found = new GpuFunction(loadedFunction(source_, kernel, static_cast<int>(device)));
      ready = found;
    }
    return *found;
  }

  ModelSource source_;
  PluginLauncher launcher_{};
  std::array<std::array<std::atomic<const GpuFunction *>, kModelKernels>, kDevices> ready_{};
};

}  // namespace

const PluginLauncher &launcherOf(const ModelSource &source) {
  return (new ModelKernels(source))->launcher();  // never deleted, like the plugin
}

std::vector<std::string> compileModelKernels(const ModelSource &source, const std::string &arch) {
  std::vector<std::string> paths;
  const auto kernels = static_cast<int>(factsOf(source.kind).kernel.size());
  for (int kernel = 0; kernel < kernels; ++kernel) {
    KernelCompilation compilation(source, kernel, arch);
    paths.push_back(compiledFile(compilation));
  }
  return paths;
}

}  // namespace pulsora
