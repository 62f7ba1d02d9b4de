#pragma once

/// forEach(), sumRows() and parallelRange(): loops over elements on the CPU or a GPU.
#include "pulsora/detail/core/backend.h"
