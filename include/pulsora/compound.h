#pragma once

/// Base classes and registry of compounds, and `Crossbar`: an array with reads, update and keys.
#include "pulsora/detail/compounds/compound_model.h"
#include "pulsora/detail/compounds/crossbar.h"
