#pragma once

#include "pulsora/detail/core/check.h"
