#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds the functions for models from source: register_source(), compile_ahead() and their
/// parts.
void bindDeviceSource(pybind11::module_ &module);

}  // namespace pulsora::bindings
