#pragma once

#include "array/cell_functors.h"
#include "core/isa.h"

namespace pulsora {

/// VisibleWeight for the cells [begin, end) on the CPU; compiled once per instruction set.
template <Isa isa>
void makeVisible(const VisibleWeight &cells, int64_t begin, int64_t end);

}  // namespace pulsora
