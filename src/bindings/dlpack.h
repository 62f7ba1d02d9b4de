#pragma once

#include <cstdint>

// The binary interface of DLPack (https://dmlc.github.io/dlpack), version 0: the contents of a
// capsule named "dltensor". Producers of newer versions give such a capsule unless, unlike here, a
// newer version is requested.

namespace pulsora::bindings::dlpack {

enum DeviceType : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void *data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t *shape;
  int64_t *strides;  // in elements; null for a gapless row-major tensor
  uint64_t byteOffset;
};

struct ManagedTensor {
  Tensor tensor;
  void *owner;
  void (*deleter)(ManagedTensor *);
};

constexpr const char *kCapsuleName = "dltensor";
constexpr const char *kUsedCapsuleName = "used_dltensor";

}  // namespace pulsora::bindings::dlpack
