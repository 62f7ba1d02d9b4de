#pragma once

#include <memory>
#include <pybind11/pybind11.h>
#include <vector>

#include "core/buffer.h"
#include "core/context.h"

namespace pulsora::bindings {

namespace py = pybind11;

/// A float32 array in GPU memory that other libraries adopt through DLPack:
/// torch.from_dlpack(array).
class DeviceArray {
 public:
  DeviceArray(const Context &context, std::vector<int64_t> shape);

  float *data() const { return memory_->data(); }
  const std::vector<int64_t> &shape() const { return shape_; }
  void *stream() const { return context_.stream; }
  /// (device type, ordinal) in DLPack's numbers.
  py::tuple device() const;
  /// A capsule for a consumer that works in `stream`: that stream waits for the data, and the next
  /// user of the memory waits for what the consumer had enqueued when it released it.
  py::capsule toDlpack(void *stream) const;

 private:
  Context context_;
  std::shared_ptr<Buffer<float>> memory_;
  std::vector<int64_t> shape_;
};

/// Adds class DeviceArray to the module.
void bindDeviceArray(py::module_ &module);

}  // namespace pulsora::bindings
