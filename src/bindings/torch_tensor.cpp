#include "torch_tensor.h"

#include "core/threads.h"

namespace pulsora::bindings {

namespace py = pybind11;

py::object ask(py::handle tensor, PyObject *method) {
  PyObject *answer = PyObject_CallMethodNoArgs(tensor.ptr(), method);
  if (!answer) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(answer);
}

void *addressOf(py::handle tensor) {
  static PyObject *const kDataPtr = PyUnicode_InternFromString("data_ptr");
  return reinterpret_cast<void *>(ask(tensor, kDataPtr).cast<uintptr_t>());
}

Context contextOf(int device, intptr_t stream, int threads) {
  Context context;
  if (device >= 0) {
    context.backend = Backend::Cuda;
    context.device = device;
    context.stream = reinterpret_cast<void *>(stream);
  } else {
    requireThreads(threads);
    context.cpu.threads = threads;
  }
  return context;
}

}  // namespace pulsora::bindings
