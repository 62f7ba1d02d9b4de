#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds class StepGraph to the module.
void bindStepGraph(pybind11::module_ &module);

}  // namespace pulsora::bindings
