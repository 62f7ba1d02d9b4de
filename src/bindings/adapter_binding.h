#pragma once

#include <pybind11/pybind11.h>

#include "shared_tile.h"

namespace pulsora::bindings {

/// Adds the functions of a tile's low-rank adapter (TileAdapter) to the class of tiles.
void bindAdapter(py::class_<SharedTile> &made);

}  // namespace pulsora::bindings
