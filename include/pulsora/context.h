#pragma once

#include "pulsora/detail/core/context.h"
