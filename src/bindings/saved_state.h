#pragma once

#include <pybind11/pybind11.h>

#include "storage/state.h"

namespace pulsora::bindings {

namespace py = pybind11;

/// A state as (dict of NumPy arrays, dict of plain values), and back. StateError for what a state
/// cannot hold.
py::tuple fromState(const State &state);
State toState(const py::dict &tensors, const py::dict &values);

/// States as files, and how a file is replaced.
void bindSavedState(py::module_ &module);

}  // namespace pulsora::bindings
