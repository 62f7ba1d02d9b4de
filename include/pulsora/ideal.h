#pragma once

#include "pulsora/detail/compounds/ideal.h"
