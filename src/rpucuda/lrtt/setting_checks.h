#pragma once

#include "lrtt/settings.h"

namespace pulsora {

/// Throws ConfigError, naming `lrtt.<parameter>`, for settings that contradict one another.
void checkCombinations(const LRTTParams &p, const UpdateParameters &update);
/// Throws ConfigError unless a layer that is one tile can be read in the blocks of its settings.
void checkBlocks(const LRTTSettings &s);

}  // namespace pulsora
