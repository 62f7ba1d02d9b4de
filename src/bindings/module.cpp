#include <pybind11/pybind11.h>

#include "core/cuda_api.h"
#include "device_array.h"
#include "device_source_binding.h"
#include "errors.h"
#include "forecast_binding.h"
#include "instruction_sets.h"
#include "layers_binding.h"
#include "lowrank_binding.h"
#include "runtime_binding.h"
#include "saved_state.h"
#include "schema.h"
#include "scratch_binding.h"
#include "step_graph_binding.h"
#include "storage_binding.h"
#include "tile_binding.h"
#include "tile_grid_binding.h"
#include "training_graph_binding.h"
#include "training_update_binding.h"

PYBIND11_MODULE(_core, module) {
  module.doc() =
      "The compiled core of Pulsora. Use the package pulsora; this module may change at any time.";
  module.attr("__version__") = PULSORA_VERSION;
  pulsora::bindings::bindErrors(module);
  pulsora::bindings::bindSchema(module);
  pulsora::bindings::bindDeviceSource(module);
  pulsora::bindings::bindRuntime(module);
  pulsora::bindings::bindDeviceArray(module);
  pulsora::bindings::bindSavedState(module);
  pulsora::bindings::bindTile(module);
  pulsora::bindings::bindTileGrid(module);
  pulsora::bindings::bindStepGraph(module);
  pulsora::bindings::bindTrainingGraph(module);
  pulsora::bindings::bindTrainingUpdate(module);
  pulsora::bindings::bindLayers(module);
  pulsora::bindings::bindLowRank(module);
  pulsora::bindings::bindForecast(module);
  pulsora::bindings::bindInstructionSets(module);
  pulsora::bindings::bindScratch(module);
  pulsora::bindings::bindStorage(module);
  module.def("cuda_device_count", &pulsora::cudaDeviceCount,
             "Number of usable CUDA devices; 0 if this build has no CUDA or the machine no GPU.");
}
