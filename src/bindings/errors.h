#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds the exception classes to the module and maps the library's errors (core/check.h) onto them.
void bindErrors(pybind11::module_ &module);

}  // namespace pulsora::bindings
