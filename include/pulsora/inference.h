#pragma once

/// `InferenceParams`: weights that are programmed once into an array whose devices drift.
#include "pulsora/detail/inference/inference_device.h"
