#pragma once

/// `ReferenceParams`: an array and an array of references.
#include "pulsora/detail/compounds/reference.h"
