#pragma once

#include <pybind11/pybind11.h>
#include <string>

#include "core/isa.h"

namespace pulsora::bindings {

/// The instruction set of a name such as "V3"; the best of this machine for "". ConfigError for any
/// other name.
Isa isaNamed(const std::string &name);

void bindInstructionSets(pybind11::module_ &module);

}  // namespace pulsora::bindings
