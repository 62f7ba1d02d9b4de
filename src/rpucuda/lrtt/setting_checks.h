#pragma once

#include "lrtt/settings.h"

namespace pulsora {

/// Throws ConfigError, naming `lrtt.<parameter>`, for settings that contradict one another.
void checkCombinations(const LRTTParams &p, const UpdateParameters &update);
/// The same for the blocks in which a layer that is one tile is read.
void checkBlocks(const LRTTSettings &s);

}  // namespace pulsora
