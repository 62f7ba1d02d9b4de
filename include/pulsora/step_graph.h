#pragma once

/// `StepGraph`: a mini-batch as one CUDA graph.
#include "pulsora/detail/tile/step_graph.h"
