#pragma once

#include <pybind11/pybind11.h>

#include "shared_tile.h"

namespace pulsora::bindings {

/// Adds the functions of a programmed tile (TileProgramming) to the class of tiles.
void bindProgramming(py::class_<SharedTile> &tile);
/// Adds functions that program many tiles at once.
void bindProgrammingOfTiles(py::module_ &core);

}  // namespace pulsora::bindings
