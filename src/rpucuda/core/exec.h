#pragma once

#include "core/isa.h"

namespace pulsora {

/// How matrix products are made on a GPU.
enum class GpuProducts {
  Single,        ///< in single precision, or equally accurate
  Tf32Forward,   ///< forward reads of large arrays round factors to 11 bits; else as Single
  Tf32,          ///< as Tf32Forward, for reads in both directions
  Reproducible,  ///< in the CPU's order of operations and to its bits, a few times slower
};

/// How CPU code runs. No setting here changes a result.
struct CpuExec {
  int threads = 1;  ///< OpenMP threads an operation may use; >= 1
  Isa isa = bestIsa();
};

}  // namespace pulsora
