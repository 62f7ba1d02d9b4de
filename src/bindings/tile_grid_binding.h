#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds class TileGrid to the module.
void bindTileGrid(pybind11::module_ &module);

}  // namespace pulsora::bindings
