#pragma once

#include <pybind11/pybind11.h>

#include "array/device_model.h"
#include "noise_models/noise_model_params.h"

namespace pulsora::bindings {

/// Adds the functions behind Python's configuration classes: schema(), validate() and suggest().
void bindSchema(pybind11::module_ &module);

/// A model's entry in schema().
pybind11::dict describeDevice(const DeviceModel &model);
pybind11::dict describeNoiseModel(const NoiseModel &model);

}  // namespace pulsora::bindings
