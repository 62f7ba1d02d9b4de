#pragma once

/// Parameters by name: `readParams`, `writeParams`, and `Value`.
#include "pulsora/detail/parameters/field.h"
#include "pulsora/detail/parameters/value.h"
