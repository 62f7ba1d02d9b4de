#pragma once

#include "pulsora/detail/pulses/update_parameters.h"
