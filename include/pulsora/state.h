#pragma once

/// `State`: the tensors and values of a saved object.
#include "pulsora/detail/storage/state.h"
