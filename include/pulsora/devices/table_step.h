#pragma once

/// The device model TableStep: steps from measured tables, read between their nodes.
#include "pulsora/detail/devices/table_step.h"
