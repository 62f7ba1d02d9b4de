#pragma once

/// `VectorParams`: several arrays that act as one weight.
#include "pulsora/detail/compounds/vector.h"
