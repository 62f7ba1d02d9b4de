#pragma once

#include "pulsora/detail/core/backend.h"
