#pragma once

#include "periphery/io_parameters.h"
#include "pulses/update_parameters.h"

namespace RPU {

/// What surrounds the arrays of a tile: the periphery of both reads, and how updates become pulses.
struct Surroundings {
  static constexpr const char *kName = "Surroundings";

  IOParameters forward;
  IOParameters backward;
  UpdateParameters update;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = Surroundings;
    f(&P::forward, "forward", anyNumber(), "", "Periphery of the forward read.");
    f(&P::backward, "backward", anyNumber(), "", "Periphery of the backward read.");
    f(&P::update, "update", anyNumber(), "", "Pulsed update.");
  }
};

}  // namespace RPU
