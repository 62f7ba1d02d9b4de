#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds what layers on the CPU do to their tensors around the tiles to the module.
void bindLayers(pybind11::module_ &module);

}  // namespace pulsora::bindings
