#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds functions that compile, load and launch code for a GPU; the package wraps them as
/// pulsora.runtime.
void bindRuntime(pybind11::module_ &module);

}  // namespace pulsora::bindings
