#pragma once

#include "pulsora/detail/tile/step_graph.h"
