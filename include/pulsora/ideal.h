#pragma once

/// `IdealParams`: floating-point weights behind the periphery of an analog tile.
#include "pulsora/detail/compounds/ideal.h"
