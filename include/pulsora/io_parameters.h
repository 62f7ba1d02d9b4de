#pragma once

#include "pulsora/detail/periphery/io_parameters.h"
