#pragma once

#include <pybind11/pybind11.h>

#include "storage/state.h"

namespace pulsora::bindings {

namespace py = pybind11;

/// A state as (dict of NumPy arrays, dict of plain values), and back. StateError for objects that a
/// state cannot hold.
py::tuple fromState(State state);
State toState(const py::dict &tensors, const py::dict &values);

/// Adds functions that read and write states as files, and replace_file(), to the module.
void bindSavedState(py::module_ &module);

}  // namespace pulsora::bindings
