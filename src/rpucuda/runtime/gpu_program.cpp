#include "runtime/gpu_program.h"

#include <array>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "core/batched_launches.h"
#include "runtime/cuda_driver.h"

namespace pulsora {
namespace detail {

struct LoadedCode {
  int device;
  CuLibrary library = nullptr;

  LoadedCode(std::string_view code, int number) : device(number) {
    const CudaContextScope scope(device);
    const CudaDriver &driver = CudaDriver::get();
    const std::string what = message("load code for GPU ", device);
    const std::string text(code);  // PTX ends with a zero
    driver.check(
        driver.libraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        what);
    void *module = nullptr;  // requested now, so that invalid code fails here
    const int status = driver.libraryGetModule(&module, library);
    if (status != 0) driver.libraryUnload(library);
    driver.check(status, what);
  }
  ~LoadedCode() { CudaDriver::get().libraryUnload(library); }
  LoadedCode(const LoadedCode &) = delete;
  LoadedCode &operator=(const LoadedCode &) = delete;
};

}  // namespace detail

namespace {

constexpr const char *kPointer = "a pointer";
constexpr int kAttributeThreads = 0;  // of CUfunction_attribute
constexpr int kAttributeStaticShared = 1;
constexpr int kDeviceShared = 8;  // of CUdevice_attribute: shared memory of a block

struct TypeSize {
  const char *name;
  size_t bytes;
};
constexpr std::array<TypeSize, 12> kTypes = {{{"bool", 1},
                                              {"int8", 1},
                                              {"uint8", 1},
                                              {"int16", 2},
                                              {"uint16", 2},
                                              {"float16", 2},
                                              {"int32", 4},
                                              {"uint32", 4},
                                              {"float32", 4},
                                              {"int64", 8},
                                              {"uint64", 8},
                                              {"float64", 8}}};

bool isPointer(const std::string &type) { return !type.empty() && type.back() == '*'; }

/// Bytes of a parameter.
size_t sizeOfParameter(const std::string &type) {
  if (type == "void*") return sizeof(void *);
  if (!isPointer(type)) return sizeOfGpuType(type);
  static_cast<void>(sizeOfGpuType(type.substr(0, type.size() - 1)));  // throws for an unknown type
  return sizeof(void *);
}

/// Allows calls that a graph capture of this thread would refuse, during its lifetime: these calls
/// do not touch the captured stream.
class OutsideCapture {
 public:
  OutsideCapture() { CudaDriver::get().exchangeCaptureMode(&mode_); }
  ~OutsideCapture() { CudaDriver::get().exchangeCaptureMode(&mode_); }
  OutsideCapture(const OutsideCapture &) = delete;
  OutsideCapture &operator=(const OutsideCapture &) = delete;

 private:
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
};

/// Releases something by work(). At the end of a process the driver, and everything in it, may be
/// gone.
template <class Work>
void release(int device, const Work &work) noexcept {
  try {
    const CudaContextScope scope(device);
    work(CudaDriver::get());
  } catch (const std::exception &) {
    return;
  }
}

void requireSize(const std::string &name, int64_t size) {
  PULSORA_CHECK(ConfigError, size >= 0, name, " is ", size, "; it must be >= 0");
}

}  // namespace

std::string gpuArchitecture(int device) {
  const CudaContextScope scope(device);
  return CudaDriver::get().architecture(device);
}

// --- GpuStream

GpuStream::GpuStream(int device) : device_(device) {
  const CudaContextScope scope(device);
  const CudaDriver &driver = CudaDriver::get();
  void *handle = nullptr;
  driver.check(driver.streamCreate(&handle, 0), message("make a stream on GPU ", device));
  handle_ = {handle, [device](void *stream) {
               release(device, [&](const CudaDriver &d) { d.streamDestroy(stream); });
             }};
}

void GpuStream::synchronize() const {
  const CudaContextScope scope(device_);
  const CudaDriver &driver = CudaDriver::get();
  driver.check(driver.streamSynchronize(handle()), "finish the work of a stream");
}

// --- GpuArray

size_t sizeOfGpuType(const std::string &type) {
  std::string known;
  for (const TypeSize &each : kTypes) {
    if (type == each.name) return each.bytes;
    known += std::string(known.empty() ? "" : ", ") + each.name;
  }
  throw ConfigError(
      message("type is '", type, "', which is no type of numbers on a GPU; write one of ", known));
}

GpuArray::GpuArray(std::string type, int64_t size, int device)
    : type_(std::move(type)), size_(size), device_(device) {
  requireSize("size", size);
  const size_t each = sizeOfGpuType(type_);
  PULSORA_CHECK(OutOfMemoryError,
                static_cast<uint64_t>(size) <= std::numeric_limits<uint64_t>::max() / 2 / each,
                "an array of ", size, " numbers of type ", type_, " does not fit into any memory");
  if (size == 0) return;
  const CudaContextScope scope(device);
  const CudaDriver &driver = CudaDriver::get();
  CuPointer memory = 0;
  driver.check(driver.memoryAllocate(&memory, bytes()),
               message("allocate ", bytes(), " bytes on GPU ", device));
  data_ = {reinterpret_cast<void *>(memory), [device](void *data) {
             release(device,
                     [&](const CudaDriver &d) { d.memoryFree(reinterpret_cast<CuPointer>(data)); });
           }};
}

size_t GpuArray::bytes() const { return static_cast<size_t>(size_) * sizeOfGpuType(type_); }

GpuArray GpuArray::zeros(const std::string &type, int64_t size, int device, void *stream) {
  GpuArray array(type, size, device);
  if (size == 0) return array;
  const CudaContextScope scope(device);
  const CudaDriver &driver = CudaDriver::get();
  driver.check(driver.fill(reinterpret_cast<CuPointer>(array.data()), 0, array.bytes(), stream),
               "fill memory with zeros");
  return array;
}

GpuArray GpuArray::upload(const std::string &type, const void *from, int64_t size, int device,
                          void *stream) {
  GpuArray array(type, size, device);
  if (size == 0) return array;
  const CudaContextScope scope(device);
  const CudaDriver &driver = CudaDriver::get();
  driver.check(
      driver.copyToDevice(reinterpret_cast<CuPointer>(array.data()), from, array.bytes(), stream),
      "copy to a GPU");
  driver.check(driver.streamSynchronize(stream), "copy to a GPU");
  return array;
}

void GpuArray::download(void *to, void *stream) const {
  if (size_ == 0) return;
  const CudaContextScope scope(device_);
  const CudaDriver &driver = CudaDriver::get();
  driver.check(driver.copyToHost(to, reinterpret_cast<CuPointer>(data()), bytes(), stream),
               "copy from a GPU");
  driver.check(driver.streamSynchronize(stream), "copy from a GPU");
}

GpuArgument GpuArgument::ofBytes(std::string type, std::string_view bytes, int device) {
  GpuArgument argument(std::move(type), uint64_t{0});
  PULSORA_CHECK(InputError, bytes.size() <= sizeof argument.value_, "an argument of type ",
                argument.type_, " has ", bytes.size(), " bytes; it must have at most ",
                sizeof argument.value_);
  std::memcpy(argument.value_, bytes.data(), bytes.size());
  argument.device_ = device;
  return argument;
}

// --- GpuProgram

GpuProgram::GpuProgram(std::string_view code, int device)
    : code_([&] {
        static_cast<void>(CudaDriver::get());
        const OutsideCapture outside;
        return std::make_shared<const detail::LoadedCode>(code, device);
      }()) {}

GpuFunction GpuProgram::function(const std::string &name) const {
  const CudaContextScope scope(code_->device);
  const OutsideCapture outside;
  const CudaDriver &driver = CudaDriver::get();
  CuKernel kernel = nullptr;
  const int status = driver.libraryGetKernel(&kernel, code_->library, name.c_str());
  PULSORA_CHECK(
      ConfigError, status != CudaDriver::kNotFound, "there is no kernel '", name,
      "' in the code; a kernel's name in it is that of GpuBinary::names, or its own if it is "
      "extern \"C\"");
  driver.check(status, message("find the kernel '", name, "'"));
  GpuFunction function;
  function.code_ = code_;
  function.device_ = code_->device;
  function.name_ = name;
  // This loads the code onto the GPU, so that the first launch, which may be captured, does not.
  driver.check(driver.kernelGetFunction(&function.function_, kernel),
               message("load the kernel '", name, "'"));
  int staticShared = 0;
  driver.check(
      driver.functionGetAttribute(&function.mostThreads_, kAttributeThreads, function.function_),
      "describe a kernel");
  driver.check(
      driver.functionGetAttribute(&staticShared, kAttributeStaticShared, function.function_),
      "describe a kernel");
  function.mostShared_ = driver.attribute(code_->device, kDeviceShared) - staticShared;
  function.overlaps_ = driver.attribute(code_->device, CudaDriver::kComputeMajor) >= 9;
  function.knowsSizes_ = driver.kernelGetParamInfo != nullptr;
  while (function.knowsSizes_) {
    size_t offset = 0;
    size_t size = 0;
    if (driver.kernelGetParamInfo(kernel, function.sizes_.size(), &offset, &size) != 0) break;
    function.sizes_.push_back(size);
  }
  return function;
}

GpuFunction GpuProgram::function(const std::string &name, std::vector<std::string> types) const {
  std::vector<size_t> sizes;
  sizes.reserve(types.size());
  for (const std::string &type : types) sizes.push_back(sizeOfParameter(type));
  GpuFunction function = this->function(name);
  if (function.knowsSizes_) {
    PULSORA_CHECK(ConfigError, sizes.size() == function.sizes_.size(), "types has ", sizes.size(),
                  " entries, but the kernel '", name, "' has ", function.sizes_.size(),
                  " parameters; name the type of each");
    for (size_t i = 0; i < sizes.size(); ++i) {
      PULSORA_CHECK(ConfigError, sizes[i] == function.sizes_[i], "types[", i, "] is '", types[i],
                    "', of ", sizes[i], " bytes, but parameter ", i, " of the kernel '", name,
                    "' has ", function.sizes_[i], "; name the type that the kernel has");
    }
  }
  function.types_ = std::move(types);
  return function;
}

// --- GpuFunction

void GpuFunction::requireGrid(const GpuGrid &grid) const {
  const auto require = [&](const char *name, int64_t value, int64_t most) {
    PULSORA_CHECK(ConfigError, value >= 1 && value <= most, name, " is ", value,
                  " in a launch of '", name_, "'; it must be >= 1 and <= ", most);
  };
  require("blocks.x", grid.blocks.x, std::numeric_limits<int32_t>::max());
  require("blocks.y", grid.blocks.y, 65535);
  require("blocks.z", grid.blocks.z, 65535);
  require("threads.x", grid.threads.x, mostThreads_);
  require("threads.y", grid.threads.y, mostThreads_);
  require("threads.z", grid.threads.z, 64);
  const int64_t threads = grid.threads.x * grid.threads.y * grid.threads.z;
  PULSORA_CHECK(ConfigError, threads <= mostThreads_, "threads are ", threads, " in a launch of '",
                name_, "'; its blocks can have at most ", mostThreads_);
  PULSORA_CHECK(ConfigError, grid.sharedBytes >= 0 && grid.sharedBytes <= mostShared_,
                "shared_bytes is ", grid.sharedBytes, " in a launch of '", name_,
                "'; it must be >= 0 and <= ", mostShared_);
}

void GpuFunction::enqueue(const GpuGrid &grid, const void *const *arguments, void *stream,
                          bool overlaps) const {
  CuAttribute attribute{};
  attribute.id = CuAttribute::kProgrammaticSerialization;
  attribute.value.flag = 1;
  const auto number = [](int64_t n) { return static_cast<unsigned>(n); };
  CuLaunch launch{};
  launch.grid[0] = number(grid.blocks.x);
  launch.grid[1] = number(grid.blocks.y);
  launch.grid[2] = number(grid.blocks.z);
  launch.block[0] = number(grid.threads.x);
  launch.block[1] = number(grid.threads.y);
  launch.block[2] = number(grid.threads.z);
  launch.sharedBytes = number(grid.sharedBytes);
  launch.stream = stream;
  launch.attributes = &attribute;
  launch.attributeCount = overlaps ? 1 : 0;
  const CudaDriver &driver = CudaDriver::get();
  BatchedLaunches::sendKept();
  // The driver copies the arguments, and does not change them.
  const int status =
      driver.launchKernel(&launch, function_, const_cast<void **>(arguments), nullptr);
  if (status != 0) driver.check(status, message("launch '", name_, "'"));
}

void GpuFunction::launchRaw(const GpuGrid &grid, const void *const *arguments,
                            const uint64_t *sizes, size_t count, void *stream) const {
  bool fits = count == sizes_.size();
  for (size_t i = 0; fits && i < count; ++i) fits = sizes[i] == sizes_[i];
  PULSORA_CHECK(DeviceError, fits || !knowsSizes_, "the arguments of '", name_,
                "' do not have the sizes that its code expects: the compilers for CPU and GPU see "
                "different parameters");
  requireGrid(grid);
  enqueue(grid, arguments, stream, overlaps_);
}

void GpuFunction::launch(const GpuGrid &grid, const std::vector<GpuArgument> &arguments,
                         void *stream) const {
  PULSORA_CHECK(InputError, arguments.size() == types_.size(), "'", name_, "' takes ",
                types_.size(), " arguments, and was given ", arguments.size());
  std::vector<const void *> values;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const GpuArgument &argument = arguments[i];
    const bool fits =
        argument.type() == types_[i] || (types_[i] == "void*" && isPointer(argument.type()));
    PULSORA_CHECK(InputError, fits, "argument ", i, " of '", name_, "' is ",
                  isPointer(argument.type()) ? kPointer : "a number", " of type ", argument.type(),
                  "; pass ", types_[i]);
    PULSORA_CHECK(InputError, argument.device() < 0 || argument.device() == device_, "argument ", i,
                  " of '", name_, "' lies on GPU ", argument.device(), "; the kernel is on GPU ",
                  device_);
    values.push_back(argument.value());
  }
  requireGrid(grid);
  const CudaContextScope scope(device_);
  enqueue(grid, values.data(), stream, false);
}

}  // namespace pulsora
