#pragma once

#include "pulsora/detail/array/pulsed_weight_updater.h"
