#pragma once

#include "pulsora/detail/compounds/single.h"
