#pragma once

#include "pulsora/detail/tile/training_graph.h"
