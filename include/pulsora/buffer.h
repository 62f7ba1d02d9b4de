#pragma once

/// `Buffer`: owned memory on a CPU or GPU.
#include "pulsora/detail/core/buffer.h"
