// The GPU functions of pulses/ for a build without CUDA; CMake compiles this file only then.

#include "core/has_cuda.h"
#include "pulses/draw_pulse_trains.h"

namespace pulsora {

void cudaScalePulseTrains(const Context &, MatrixView<const float>, MatrixView<const float>,
                          const PulseTrainJob &) {
  throwWithoutCuda();
}
void cudaDrawPulseTrains(const Context &, const PulseTrainSide *, int) { throwWithoutCuda(); }

}  // namespace pulsora
