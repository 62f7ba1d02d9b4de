#pragma once

#include "pulsora/detail/array/events.h"
