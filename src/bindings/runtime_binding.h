#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds what compiles, loads and launches code for a GPU; the package wraps it as pulsora.runtime.
void bindRuntime(pybind11::module_ &module);

}  // namespace pulsora::bindings
