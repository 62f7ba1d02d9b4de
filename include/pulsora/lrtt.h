#pragma once

#include "pulsora/detail/lrtt/parameters.h"
