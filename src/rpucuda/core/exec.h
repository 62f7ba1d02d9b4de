#pragma once

#include "core/isa.h"

namespace RPU {

/// Which library multiplies float matrices on the CPU.
enum class Products {
  Reproducible,  ///< our own: the bits depend on the operands alone (core/gemm.h)
  Blas,          ///< the system's CBLAS: rounding differs between libraries, machines and shapes
};

/// How matrix products are made on a GPU.
enum class GpuProducts {
  Single,        ///< in single precision, or equally accurate
  Tf32Forward,   ///< forward reads of large arrays round factors to 11 bits; else as Single
  Tf32,          ///< as Tf32Forward, for reads in both directions
  Reproducible,  ///< in the CPU's order of operations and to its bits, a few times slower
};

/// How CPU code runs. Nothing in here changes a result, except `Products::Blas`.
struct CpuExec {
  int threads = 1;  ///< OpenMP threads an operation may use; >= 1
  Isa isa = bestIsa();
  Products products = Products::Reproducible;
};

}  // namespace RPU
