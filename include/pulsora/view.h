#pragma once

#include "pulsora/detail/core/view.h"
