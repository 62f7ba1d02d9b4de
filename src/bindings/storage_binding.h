#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds the function that names the source of the storage of buffers on GPUs.
void bindStorage(pybind11::module_ &module);

}  // namespace pulsora::bindings
