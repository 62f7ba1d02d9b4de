#include "runtime/cuda_driver.h"

#include <map>
#include <mutex>

#include "core/check.h"

namespace pulsora {
namespace {

CudaDriver loadDriver() {
  CudaDriver d{};
  d.library = SharedLibrary::open({"libcuda.so.1"});
  PULSORA_CHECK(DeviceError, d.library, "there is no CUDA driver: ", d.library.problem(),
                "; install the driver of an NVIDIA GPU, or use device='cpu'");
  const SharedLibrary &l = d.library;
  l.find(d.init, "cuInit");
  l.find(d.getErrorName, "cuGetErrorName");
  l.find(d.getErrorString, "cuGetErrorString");
  l.find(d.deviceGet, "cuDeviceGet");
  l.find(d.deviceGetCount, "cuDeviceGetCount");
  l.find(d.deviceGetAttribute, "cuDeviceGetAttribute");
  l.find(d.primaryContextRetain, "cuDevicePrimaryCtxRetain");
  l.find(d.primaryContextRelease, "cuDevicePrimaryCtxRelease_v2");
  l.find(d.contextPush, "cuCtxPushCurrent_v2");
  l.find(d.contextPop, "cuCtxPopCurrent_v2");
  l.find(d.contextGetDevice, "cuCtxGetDevice");
  l.find(d.exchangeCaptureMode, "cuThreadExchangeStreamCaptureMode");
  l.find(d.libraryLoadData, "cuLibraryLoadData");
  l.find(d.libraryUnload, "cuLibraryUnload");
  l.find(d.libraryGetModule, "cuLibraryGetModule");
  l.find(d.libraryGetKernel, "cuLibraryGetKernel");
  l.find(d.kernelGetFunction, "cuKernelGetFunction");
  l.find(d.kernelGetParamInfo, "cuKernelGetParamInfo");
  l.find(d.functionGetAttribute, "cuFuncGetAttribute");
  l.find(d.launchKernel, "cuLaunchKernelEx");
  l.find(d.memoryAllocate, "cuMemAlloc_v2");
  l.find(d.memoryFree, "cuMemFree_v2");
  l.find(d.copyToDevice, "cuMemcpyHtoDAsync_v2");
  l.find(d.copyToHost, "cuMemcpyDtoHAsync_v2");
  l.find(d.fill, "cuMemsetD8Async");
  l.find(d.streamCreate, "cuStreamCreate");
  l.find(d.streamDestroy, "cuStreamDestroy_v2");
  l.find(d.streamSynchronize, "cuStreamSynchronize");
  PULSORA_CHECK(DeviceError,
                d.init && d.getErrorName && d.getErrorString && d.deviceGet && d.deviceGetCount &&
                    d.deviceGetAttribute && d.primaryContextRetain && d.primaryContextRelease &&
                    d.contextPush && d.contextPop && d.contextGetDevice && d.exchangeCaptureMode &&
                    d.libraryLoadData && d.libraryUnload && d.libraryGetModule &&
                    d.libraryGetKernel && d.kernelGetFunction && d.functionGetAttribute &&
                    d.launchKernel && d.memoryAllocate && d.memoryFree && d.copyToDevice &&
                    d.copyToHost && d.fill && d.streamCreate && d.streamDestroy &&
                    d.streamSynchronize,
                "the CUDA driver ", l.name(),
                " is older than CUDA 12; install a newer driver, or use device='cpu'");
  d.check(d.init(0), "start");
  return d;
}

}  // namespace

const CudaDriver &CudaDriver::get() {
  static const CudaDriver driver = loadDriver();  // looked for again after a failure
  return driver;
}

void CudaDriver::check(int status, const std::string &what) const {
  if (status == 0) return;
  const char *name = nullptr;
  const char *text = nullptr;
  getErrorName(status, &name);
  getErrorString(status, &text);
  const std::string full = message("the CUDA driver cannot ", what, ": ", text ? text : "", " (",
                                   name ? name : "unknown error", ")");
  switch (status) {
    case kOutOfMemory:
      throw OutOfMemoryError(full);
    case 200:  // CUDA_ERROR_INVALID_IMAGE
    case 209:  // CUDA_ERROR_NO_BINARY_FOR_GPU
    case 218:  // CUDA_ERROR_INVALID_PTX
    case 222:  // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    case 300:  // CUDA_ERROR_INVALID_SOURCE
      throw CompileError(full);
    default:
      throw DeviceError(full);
  }
}

int CudaDriver::attribute(int device, int which) const {
  int handle = 0;
  int value = 0;
  check(deviceGet(&handle, device), message("use GPU ", device));
  check(deviceGetAttribute(&value, which, handle), message("describe GPU ", device));
  return value;
}

std::string CudaDriver::architecture(int device) const {
  return message("sm_", attribute(device, kComputeMajor), attribute(device, kComputeMinor));
}

int CudaDriver::currentDevice() const {
  int device = 0;
  check(contextGetDevice(&device), "tell the current GPU");
  return device;
}

int CudaDriver::deviceCount() const {
  int count = 0;
  check(deviceGetCount(&count), "count GPUs");
  return count;
}

CudaContextScope::CudaContextScope(int device) : driver_(CudaDriver::get()) {
  const int count = driver_.deviceCount();
  PULSORA_CHECK(ConfigError, device >= 0 && device < count, "device is ", device,
                "; this machine has ", count, " GPUs, counted from 0");
  // Retained once per device and never released: objects in a context outlive scopes.
  static std::mutex lock;
  static std::map<int, CuContext> contexts;
  const std::lock_guard<std::mutex> guard(lock);
  CuContext &context = contexts[device];
  if (!context) {
    int handle = 0;
    driver_.check(driver_.deviceGet(&handle, device), message("use GPU ", device));
    driver_.check(driver_.primaryContextRetain(&context, handle), message("use GPU ", device));
  }
  driver_.check(driver_.contextPush(context), message("use GPU ", device));
}

CudaContextScope::~CudaContextScope() {
  CuContext ignored = nullptr;
  driver_.contextPop(&ignored);
}

}  // namespace pulsora
