#pragma once

#include <pybind11/pybind11.h>

namespace RPU::bindings {

/// Adds what Python builds its configuration classes from: schema(), validate() and suggest().
void bindSchema(pybind11::module_ &module);

}  // namespace RPU::bindings
