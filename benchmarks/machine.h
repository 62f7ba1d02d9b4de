#pragma once

#include <string>

#include "core/isa.h"

namespace RPU::bench {

/// What this machine was measured to do, with a given instruction set and number of threads.
struct Peaks {
  double laneOperations;  ///< per second: floats of vector fma (V2: of vector products and sums)
  double copyBytes;       ///< per second, read plus written, of arrays far larger than the caches
};

Peaks measurePeaks(Isa isa, int threads);

/// The processor's name, as the operating system gives it.
std::string processorName();

/// Number of runnable processes over the last minute: timings are to be trusted where it is below
/// the number of cores.
double loadAverage();

}  // namespace RPU::bench
