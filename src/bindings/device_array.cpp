#include "device_array.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>

#include "core/cuda_api.h"
#include "dlpack.h"
#include "no_constructor.h"

namespace pulsora::bindings {

DeviceArray::DeviceArray(const Context &context, std::vector<int64_t> shape)
    : context_(context), shape_(std::move(shape)) {
  int64_t size = 1;
  for (const int64_t extent : shape_) size *= extent;
  memory_ = std::make_shared<Buffer<float>>(context, size);
}

py::tuple DeviceArray::device() const {
  return py::make_tuple(static_cast<int>(context_.onCpu() ? dlpack::kCpu : dlpack::kCuda),
                        context_.device);
}

py::capsule DeviceArray::toDlpack(void *stream) const {
  struct Export {
    dlpack::ManagedTensor managed;
    std::shared_ptr<Buffer<float>> memory;
    std::vector<int64_t> shape;
    Context producer;
    Context consumer;
  };
  Context consumer = context_;
  consumer.stream = stream;
  detail::cudaOrder(context_, consumer);
  auto exported = std::make_unique<Export>(Export{{}, memory_, shape_, context_, consumer});
  exported->managed.tensor = {memory_->data(),
                              {dlpack::kCuda, context_.device},
                              static_cast<int32_t>(shape_.size()),
                              {dlpack::kFloat, 32, 1},
                              exported->shape.data(),
                              nullptr,
                              0};
  exported->managed.owner = exported.get();
  exported->managed.deleter = [](dlpack::ManagedTensor *self) {
    const std::unique_ptr<Export> owned(static_cast<Export *>(self->owner));
    try {
      detail::cudaOrder(owned->consumer, owned->producer);
    } catch (const std::runtime_error &) {  // NOLINT(bugprone-empty-catch)
      // The driver is shutting down and frees the memory.
    }
  };
  py::capsule capsule(&exported->managed, dlpack::kCapsuleName, [](PyObject *raw) {
    // A consumer that takes over the tensor renames the capsule.
    if (!PyCapsule_IsValid(raw, dlpack::kCapsuleName)) return;
    auto *managed =
        static_cast<dlpack::ManagedTensor *>(PyCapsule_GetPointer(raw, dlpack::kCapsuleName));
    managed->deleter(managed);
  });
  static_cast<void>(exported.release());  // the capsule owns it now
  return capsule;
}

void bindDeviceArray(py::module_ &module) {
  py::class_<DeviceArray>(
      module, "DeviceArray",
      "A float32 array in GPU memory; other libraries adopt it without a copy, for example with "
      "torch.from_dlpack(array).",
      py::custom_type_setup(&withoutNew))
      .def_property_readonly(
          "shape", [](const DeviceArray &self) { return py::tuple(py::cast(self.shape())); })
      .def("__dlpack_device__", &DeviceArray::device)
      .def(
          "__dlpack__",
          [](const DeviceArray &self, const py::object &stream, const py::kwargs &) {
            // DLPack: None and 1 are the legacy default stream, -1 asks for no ordering.
            const intptr_t number = stream.is_none() ? 1 : stream.cast<intptr_t>();
            return self.toDlpack(number == 1    ? nullptr
                                 : number == -1 ? self.stream()
                                                : reinterpret_cast<void *>(number));
          },
          py::arg("stream") = py::none());
}

}  // namespace pulsora::bindings
