#include "step_graph_binding.h"

#include <memory>

#include "no_constructor.h"
#include "tile/step_graph.h"

namespace pulsora::bindings {
namespace {

std::unique_ptr<StepGraph> makeStepGraph(int device, intptr_t stream) {
  Context context;
  context.backend = Backend::Cuda;
  context.device = device;
  context.stream = reinterpret_cast<void *>(stream);
  return std::make_unique<StepGraph>(context);
}

}  // namespace

void bindStepGraph(pybind11::module_ &module) {
  namespace py = pybind11;
  py::class_<StepGraph>(module, "StepGraph", py::custom_type_setup(&withoutNew))
      .def("begin", &StepGraph::begin)
      .def("end", &StepGraph::end, py::call_guard<py::gil_scoped_release>())
      .def("abandon", &StepGraph::abandon)
      .def_property_readonly("shapes", &StepGraph::shapes);
  module.def("make_step_graph", &makeStepGraph, py::arg("device"), py::arg("stream"));
}

}  // namespace pulsora::bindings
