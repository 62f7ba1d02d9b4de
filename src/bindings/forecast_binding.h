#pragma once

#include <pybind11/pybind11.h>

namespace pulsora::bindings {

/// Adds what pulsora.forecast is made of: encode, rollout, truncated_svd, ResidualMemory.
void bindForecast(pybind11::module_ &module);

}  // namespace pulsora::bindings
