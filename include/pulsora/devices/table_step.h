#pragma once

#include "pulsora/detail/devices/table_step.h"
