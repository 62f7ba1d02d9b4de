#pragma once

/// The gradients of both factors of a low-rank adapter, from the gradient of their product.
#include "pulsora/detail/lowrank/adapter_gradients.h"
