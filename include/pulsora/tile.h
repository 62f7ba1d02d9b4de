#pragma once

#include "pulsora/detail/tile/tile.h"
