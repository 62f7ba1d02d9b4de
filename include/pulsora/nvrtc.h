#pragma once

#include "pulsora/detail/runtime/nvrtc.h"
