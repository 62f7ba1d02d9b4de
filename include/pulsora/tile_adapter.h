#pragma once

#include "pulsora/detail/tile/tile_adapter.h"
