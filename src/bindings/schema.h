#pragma once

#include <pybind11/pybind11.h>

#include "array/device_model.h"

namespace pulsora::bindings {

/// Adds the functions behind Python's configuration classes: schema(), validate() and suggest().
void bindSchema(pybind11::module_ &module);

/// A device model's entry in schema().
pybind11::dict describeDevice(const DeviceModel &model);

}  // namespace pulsora::bindings
