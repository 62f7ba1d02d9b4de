#pragma once

#include "pulsora/detail/array/array_keys.h"
