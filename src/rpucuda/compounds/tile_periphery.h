#pragma once

#include "periphery/io_parameters.h"
#include "pulses/update_parameters.h"

namespace pulsora {

/// Parameters around the arrays of a tile: the periphery of both reads, and the conversion of
/// updates to pulses.
struct TilePeriphery {
  static constexpr const char *kName = "TilePeriphery";

  IOParameters forward;
  IOParameters backward;
  UpdateParameters update;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = TilePeriphery;
    f(&P::forward, "forward", anyNumber(), "", "Periphery of the forward read.");
    f(&P::backward, "backward", anyNumber(), "", "Periphery of the backward read.");
    f(&P::update, "update", anyNumber(), "", "Pulsed update.");
  }
};

}  // namespace pulsora
