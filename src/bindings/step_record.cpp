#include "step_record.h"

#include <pybind11/pybind11.h>
#include <utility>

namespace pulsora::bindings {

namespace py = pybind11;

void StepRecord::add(int device, int lane, TrainingGraph::Call call) {
  graph_.add(torchStream(device), lane, std::move(call));
}

void *torchStream(int device) {
  // Called at every call of a tile: torch.cuda.current_stream() makes an object and takes ten times
  // as long.
  static const py::handle current =
      py::object(py::module_::import("torch").attr("_C").attr("_cuda_getCurrentRawStream"))
          .release();
  return reinterpret_cast<void *>(current(device).cast<uintptr_t>());
}

}  // namespace pulsora::bindings
