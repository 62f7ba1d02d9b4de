#pragma once

/// `Context`: CPU threads and instruction set, or a GPU and its stream.
#include "pulsora/detail/core/context.h"
