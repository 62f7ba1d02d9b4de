#include <pybind11/pybind11.h>

#include "core/cuda_api.h"
#include "errors.h"
#include "schema.h"
#include "tensor.h"
#include "tile_binding.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The compiled core of Pulsora. Use the package pulsora; this module may change at any time.";
  module.attr("__version__") = PULSORA_VERSION;
  RPU::bindings::bindErrors(module);
  RPU::bindings::bindSchema(module);
  RPU::bindings::bindDeviceArray(module);
  RPU::bindings::bindTile(module);
  module.def("cuda_device_count", &RPU::cudaDeviceCount,
             "Number of usable CUDA devices; 0 if this build has no CUDA or the machine no GPU.");
}
