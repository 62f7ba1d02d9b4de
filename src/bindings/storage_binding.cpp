#include "storage_binding.h"

#include <cstdint>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/storage_source.h"

namespace pulsora::bindings {

namespace py = pybind11;

namespace {

/// Two Python functions, and the exception that means that no memory is left. They are never freed,
/// because storage may outlive the interpreter's modules; once the interpreter has ended, storage
/// stays with the process.
class PythonSource final : public StorageSource {
 public:
  PythonSource(py::object allocate, py::object release, py::object full)
      : allocate_(allocate.release()), release_(release.release()), full_(full.release()) {}

  void *allocate(int device, void *stream, size_t bytes) override {
    if (!Py_IsInitialized()) return nullptr;
    const py::gil_scoped_acquire lock;
    const py::error_scope pending;  // an error of the caller stays as it is
    try {
      const py::object address = allocate_(bytes, device, reinterpret_cast<uintptr_t>(stream));
      return reinterpret_cast<void *>(address.cast<uintptr_t>());
    } catch (py::error_already_set &error) {
      PULSORA_CHECK(OutOfMemoryError, !error.matches(full_), "cannot allocate ", bytes,
                    " bytes on cuda:", device, "; use a smaller array or batch. ",
                    std::string(py::str(error.value())));
      keepInterrupt(error);
      return nullptr;
    }
  }
  void release(int, void *data) noexcept override {
    if (!Py_IsInitialized()) return;
    try {
      const py::gil_scoped_acquire lock;
      const py::error_scope pending;
      try {
        release_(reinterpret_cast<uintptr_t>(data));
      } catch (py::error_already_set &error) {
        keepInterrupt(error);
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): what cannot be freed stays with the process
    }
  }

 private:
  /// Keeps an interrupt for the caller's next look.
  static void keepInterrupt(const py::error_already_set &error) {
    if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  }

  py::handle allocate_, release_, full_;
};

}  // namespace

void bindStorage(py::module_ &module) {
  module.def(
      "set_storage_source",
      [](py::object allocate, py::object release, py::object full) {
        setStorageSource(
            new PythonSource(std::move(allocate), std::move(release), std::move(full)));
      },
      py::arg("allocate"), py::arg("release"), py::arg("full"),
      "Makes large buffers on GPUs take their storage from Python functions: "
      "allocate(bytes, device, stream) returns an address or raises `full` if none is left, and "
      "release(address) frees it.");
}

}  // namespace pulsora::bindings
