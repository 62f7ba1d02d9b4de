#pragma once

#include "core/isa.h"

namespace RPU {

/// Which library multiplies float matrices on the CPU.
enum class Products {
  Reproducible,  ///< our own: the bits depend on the operands alone (core/gemm.h)
  Blas,          ///< the system's CBLAS: rounding differs between libraries, machines and shapes
};

/// How CPU code runs. Nothing in here changes a result, except `Products::Blas`.
struct CpuExec {
  int threads = 1;  ///< OpenMP threads an operation may use; >= 1
  Isa isa = bestIsa();
  Products products = Products::Reproducible;
};

}  // namespace RPU
