#pragma once

#include <string>

namespace pulsora {

/// Limits of a C++ compiler that is started at run time.
struct CompileLimits {
  double seconds = 300.0;  ///< of time
  double gigabytes = 4.0;  ///< of address space, for each of its processes; 10^9 bytes
};

/// The limits in the environment: PULSORA_COMPILE_SECONDS, from 1 to 43200, and
/// PULSORA_COMPILE_GIGABYTES, from 0.1 to 100000. ConfigError for anything else.
CompileLimits compileLimits();

}  // namespace pulsora
