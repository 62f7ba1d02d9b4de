#pragma once

#include "pulsora/detail/tile/tile_config.h"
