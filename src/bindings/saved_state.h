#pragma once

#include <pybind11/pybind11.h>

#include "core/state.h"

namespace RPU::bindings {

namespace py = pybind11;

/// A state as (dict of NumPy arrays, dict of plain values), and back. StateError for tensors of
/// another type.
py::tuple fromState(const State &state);
State toState(const py::dict &tensors, const py::dict &values);

}  // namespace RPU::bindings
