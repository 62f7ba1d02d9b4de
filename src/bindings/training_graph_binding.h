#pragma once

#include <pybind11/pybind11.h>

namespace RPU::bindings {

/// Adds class TrainingGraph to the module.
void bindTrainingGraph(pybind11::module_ &module);

}  // namespace RPU::bindings
