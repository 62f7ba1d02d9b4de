#pragma once

#include "runtime/plugin_facts.h"

// How a GPU tells of a device model. Only NVRTC reads this, where every function is the GPU's.

namespace pulsora {
namespace plugin {

/// Writes tellParams() of `params`, or tellModel() if they are null, into `out` after the number of
/// bytes that this takes; there is room for `room` of them. For one thread.
template <class Device>
__global__ void factsKernel(const typename Device::Params *params, uint64_t *out, uint64_t room) {
  FactsWriter writer{reinterpret_cast<char *>(out + 1), room};
  if (params) {
    tellParams<Device>(*params, writer);
  } else {
    tellModel<Device>(writer);
  }
  *out = writer.size;
}

}  // namespace plugin
}  // namespace pulsora
