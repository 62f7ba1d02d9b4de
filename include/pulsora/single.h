#pragma once

/// `SingleParams`: one pulsed array as the weight of a tile.
#include "pulsora/detail/compounds/single.h"
