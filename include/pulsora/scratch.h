#pragma once

/// `ScratchBuffer`: memory lent to an operation; its limit, its account and its source.
#include "pulsora/detail/core/scratch.h"
