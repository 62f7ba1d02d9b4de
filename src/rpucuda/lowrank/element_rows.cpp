#include "lowrank/element_rows.h"

#include "core/isa_dispatch.h"

namespace pulsora {

const ElementRows &elementRowsFor(Isa isa) {
  return *withIsa(isa, [](auto i) { return &elementRows<i>(); });
}

}  // namespace pulsora
