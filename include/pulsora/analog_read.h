#pragma once

#include "pulsora/detail/periphery/analog_read.h"
