#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds class Tile to the module.
void bindTile(pybind11::module_ &module);

}  // namespace pulsora::bindings
