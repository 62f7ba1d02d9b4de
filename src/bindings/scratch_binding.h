#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

void bindScratch(pybind11::module_ &module);

}  // namespace pulsora::bindings
