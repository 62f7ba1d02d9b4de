#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds the functions behind pulsora.forecast: encode, rollout, truncated_svd, ResidualMemory.
void bindForecast(pybind11::module_ &module);

}  // namespace pulsora::bindings
