#pragma once

/// Numbers of samples and events, which key the random numbers of an array.
#include "pulsora/detail/array/events.h"
