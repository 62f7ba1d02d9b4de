#pragma once

#include "pulsora/detail/core/buffer.h"
