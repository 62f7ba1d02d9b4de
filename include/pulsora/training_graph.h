#pragma once

/// `TrainingGraph`: a training step of tiles and another library as one CUDA graph.
#include "pulsora/detail/tile/training_graph.h"
