#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds class TrainingGraph to the module.
void bindTrainingGraph(pybind11::module_ &module);

}  // namespace pulsora::bindings
