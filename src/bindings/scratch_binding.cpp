#include "scratch_binding.h"

#include <string>

#include "core/scratch.h"
#include "tile_arguments.h"
#include "value.h"

namespace pulsora::bindings {
namespace {

int64_t limitOf(py::handle bytes) {
  if (!bytes.is_none()) setScratchLimit(readArgument<int64_t>(bytes, "bytes", atLeast(1)));
  return scratchLimit();
}

py::dict memoryOf(const std::string &device, bool resetPeak) {
  const Context context = contextOf(device, 1);
  if (resetPeak) resetScratchPeak(context.backend, context.device);
  const ScratchMemory memory = scratchMemory(context.backend, context.device);
  py::dict numbers;
  numbers["in_use"] = memory.inUse;
  numbers["held"] = memory.held;
  numbers["peak"] = memory.peak;
  numbers["limit"] = scratchLimit();
  return numbers;
}

}  // namespace

void bindScratch(py::module_ &module) {
  module.def("scratch_limit", &limitOf, py::arg("bytes") = py::none(),
             "The most scratch memory of an operation, in bytes; with `bytes`, it is set first. "
             "Reads and updates of many rows go in blocks of rows that keep to it, with the same "
             "bits. At first it is the number in the environment variable PULSORA_SCRATCH_LIMIT, "
             "or else 256 MiB. A limit that was set is kept: OutOfMemoryError, before anything has "
             "changed, if one row needs more. The library's own gives way to blocks of 64 rows.");
  module.def("scratch_memory", &memoryOf, py::arg("device") = "cpu", py::kw_only(),
             py::arg("reset_peak") = false,
             "The scratch memory of a device, in bytes: {'in_use': lent to operations that run, "
             "'held': kept for the next ones, 'peak': the most that was in use, 'limit': "
             "scratch_limit()}. With `reset_peak`, the peak first begins anew.");
}

}  // namespace pulsora::bindings
