#include "errors.h"

#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/check.h"

namespace pulsora::bindings {

namespace py = pybind11;

namespace {

template <class Error>
void bindError(py::module_ &module, const char *name, PyObject *base, const char *doc) {
  auto &type = py::register_exception<Error>(module, name, base);
  type.attr("__doc__") = doc;
  type.attr("__module__") = "pulsora";
}

}  // namespace

void bindErrors(py::module_ &module) {
  bindError<ConfigError>(module, "ConfigError", PyExc_ValueError,
                         "A parameter, or a combination of parameters, is out of its range.");
  bindError<InputError>(
      module, "InputError", PyExc_ValueError,
      "An array has the wrong shape, type or layout, or values that are not finite.");
  bindError<StateError>(module, "StateError", PyExc_ValueError,
                        "A saved state is damaged or does not fit the object that loads it.");
  bindError<DeviceError>(
      module, "DeviceError", PyExc_RuntimeError,
      "The device or its driver refused: no GPU, a failed launch, a failed library call.");
  bindError<CompileError>(module, "CompileError", PyExc_RuntimeError,
                          "A device model or other code did not compile; the message ends with "
                          "the compiler's messages.");
  bindError<CompilerNotFound>(
      module, "CompilerNotFound", module.attr("CompileError").ptr(),
      "There is no compiler: no C++ compiler for the CPU, or no NVRTC for a GPU; or none may be "
      "used (PULSORA_COMPILE=never).");
  bindError<OutOfMemoryError>(module, "OutOfMemoryError", PyExc_MemoryError,
                              "Memory could not be allocated; the object called has not changed.");
  // An interrupted compilation, and errors of the standard library: a file error, out of memory, or
  // an array too large.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    const auto raiseAs = [](const char *name, const char *what) {
      py::set_error(py::module_::import("pulsora._core").attr(name), what);
    };
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const CompileInterrupted &error) {
      // Python's handler has noted the signal: in the main thread it raises KeyboardInterrupt here.
      if (PyErr_CheckSignals() == 0) raiseAs("CompileError", error.what());
    } catch (const std::filesystem::filesystem_error &error) {
      // OSError made from an errno becomes FileNotFoundError, PermissionError, ...
      const std::string path = error.path1().string();
      const auto name = py::reinterpret_steal<py::object>(
          PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
      const py::tuple arguments =
          py::make_tuple(error.code().value(), error.code().message(), name);
      PyErr_SetObject(PyExc_OSError, arguments.ptr());
    } catch (const std::bad_alloc &) {
      raiseAs("OutOfMemoryError",
              "the machine has not enough memory for this; use a smaller array or batch");
    } catch (const std::length_error &) {
      raiseAs("OutOfMemoryError",
              "an array would be larger than memory can address; use a smaller array or batch");
    }
  });
}

}  // namespace pulsora::bindings
