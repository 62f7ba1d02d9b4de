#include "array/visible_weights.h"

namespace RPU {

template <>
void makeVisible<Isa::PULSORA_ISA>(const VisibleWeight &cells, int64_t begin, int64_t end) {
  const VisibleWeight cell = cells;  // not changed by what is written
  for (int64_t i = begin; i < end; ++i) cell(i);
}

}  // namespace RPU
