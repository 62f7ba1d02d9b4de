#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds the gated low-rank update and the gradients of adapters, for torch tensors, to the module.
void bindLowRank(pybind11::module_ &module);

}  // namespace pulsora::bindings
