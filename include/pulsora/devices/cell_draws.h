#pragma once

/// The random draws that make a cell.
#include "pulsora/detail/devices/cell_draws.h"
