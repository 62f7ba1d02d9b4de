#pragma once

#include "pulsora/detail/parameters/field.h"
#include "pulsora/detail/parameters/value.h"
