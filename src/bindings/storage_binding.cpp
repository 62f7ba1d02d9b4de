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
    uintptr_t address = 0;
    std::string whyFull;
    call(
        [&] {
          address = allocate_(bytes, device, reinterpret_cast<uintptr_t>(stream)).cast<uintptr_t>();
        },
        whyFull);
    PULSORA_CHECK(OutOfMemoryError, whyFull.empty(), "cannot allocate ", bytes,
                  " bytes on cuda:", device, "; use a smaller array or batch. ", whyFull);
    return reinterpret_cast<void *>(address);
  }
  void release(int, void *data) noexcept override {
    std::string unused;
    call([&] { release_(reinterpret_cast<uintptr_t>(data)); }, unused);
  }

 private:
  /// Calls work() with the interpreter lock. An interrupt is kept for the caller's next look, and
  /// other errors have no effect, but for that of a full GPU, whose text is kept.
  template <class Work>
  void call(const Work &work, std::string &whyFull) const noexcept {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire lock;
    try {
      const py::error_scope pending;  // an error of the caller stays as it is
      work();
    } catch (py::error_already_set &error) {
      if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
      if (error.matches(full_)) whyFull = py::str(error.value());
    } catch (...) {
    }
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
