#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/shared_library.h"

// CUDA's driver library (libcuda), a part of the GPU's driver, loaded when first needed. Its types
// are declared here, because a build without CUDA has no header for them; their layout is part of
// the driver's binary interface.

namespace pulsora {

using CuContext = void *;
using CuLibrary = void *;
using CuKernel = void *;
using CuFunction = void *;
using CuStream = void *;
using CuPointer = unsigned long long;

/// CUlaunchAttribute.
struct CuAttribute {
  enum Id : int { kProgrammaticSerialization = 6 };
  int id;
  int padding;
  union {
    int flag;
    char room[64];
  } value;
};

/// CUlaunchConfig.
struct CuLaunch {
  unsigned grid[3];
  unsigned block[3];
  unsigned sharedBytes;
  CuStream stream;
  CuAttribute *attributes;
  unsigned attributeCount;
};

/// The functions of the driver that Pulsora uses. Each returns 0 or the number of an error, for
/// check().
struct CudaDriver {
  /// The initialised driver. DeviceError, naming the library that was looked for, without a driver
  /// or a GPU.
  static const CudaDriver &get();

  /// OutOfMemoryError, CompileError (code that does not fit the GPU) or DeviceError unless `status`
  /// is 0; `what` names the failed operation in the message.
  void check(int status, const std::string &what) const;
  int attribute(int device, int which) const;
  /// The architecture of a GPU: "sm_90".
  std::string architecture(int device) const;
  /// The device whose context is the calling thread's current one.
  int currentDevice() const;
  int deviceCount() const;

  static constexpr int kOutOfMemory = 2;
  static constexpr int kNotFound = 500;
  static constexpr int kComputeMajor = 75;
  static constexpr int kComputeMinor = 76;

  SharedLibrary library;
  int (*init)(unsigned flags);
  int (*getErrorName)(int, const char **);
  int (*getErrorString)(int, const char **);
  int (*deviceGet)(int *, int ordinal);
  int (*deviceGetCount)(int *);
  int (*deviceGetAttribute)(int *, int which, int device);
  int (*primaryContextRetain)(CuContext *, int device);
  int (*primaryContextRelease)(int device);
  int (*contextPush)(CuContext);
  int (*contextPop)(CuContext *);
  int (*contextGetDevice)(int *);
  int (*exchangeCaptureMode)(int *mode);
  int (*libraryLoadData)(CuLibrary *, const void *code, int *, void **, unsigned, int *, void **,
                         unsigned);
  int (*libraryUnload)(CuLibrary);
  int (*libraryGetModule)(void **module, CuLibrary);
  int (*libraryGetKernel)(CuKernel *, CuLibrary, const char *name);
  int (*kernelGetFunction)(CuFunction *, CuKernel);
  int (*kernelGetParamInfo)(CuKernel, size_t index, size_t *offset, size_t *size);  // or null
  int (*functionGetAttribute)(int *, int which, CuFunction);
  int (*launchKernel)(const CuLaunch *, CuFunction, void **arguments, void **extra);
  int (*memoryAllocate)(CuPointer *, size_t);
  int (*memoryFree)(CuPointer);
  int (*copyToDevice)(CuPointer, const void *, size_t, CuStream);
  int (*copyToHost)(void *, CuPointer, size_t, CuStream);
  int (*fill)(CuPointer, unsigned char, size_t, CuStream);
  int (*streamCreate)(CuStream *, unsigned flags);
  int (*streamDestroy)(CuStream);
  int (*streamSynchronize)(CuStream);
};

/// Makes the primary context of a device, which CUDA's runtime uses too, the calling thread's
/// current one during its lifetime. ConfigError if there is no such device.
class CudaContextScope {
 public:
  explicit CudaContextScope(int device);
  ~CudaContextScope();
  CudaContextScope(const CudaContextScope &) = delete;
  CudaContextScope &operator=(const CudaContextScope &) = delete;

 private:
  const CudaDriver &driver_;
};

}  // namespace pulsora
