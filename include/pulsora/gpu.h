#pragma once

#include "pulsora/detail/core/cuda_api.h"
