#include "lowrank/element_rows.h"

#include "core/with_isa.h"

namespace RPU {

const ElementRows &elementRowsFor(Isa isa) {
  return *withIsa(isa, [](auto i) { return &elementRows<i>(); });
}

}  // namespace RPU
