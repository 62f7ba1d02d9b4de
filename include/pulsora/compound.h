#pragma once

#include "pulsora/detail/compounds/compound_model.h"
#include "pulsora/detail/compounds/crossbar.h"
