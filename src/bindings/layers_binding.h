#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds the functions of layers on the CPU for tensors before and after tiles to the module.
void bindLayers(pybind11::module_ &module);

}  // namespace pulsora::bindings
