#pragma once

#include "lrtt/parameters.h"

namespace pulsora {

/// An adapter without automatic defaults, for tests of one rule at a time: A and B learn at lr
/// alpha, transfers count samples and are sent once, and B is drawn again.
inline LRTTParams plainLrtt() {
  LRTTParams p;
  p.rank = 8;
  p.fast = DeviceParams();
  p.ab_lr_scale = LrScale::Alpha;
  p.transfer_every = 100;
  p.units_in_mbatch = false;
  p.transfer_mode = TransferMode::Lossless;
  p.reinit = Reinit::Kaiming;
  return p;
}

}  // namespace pulsora
