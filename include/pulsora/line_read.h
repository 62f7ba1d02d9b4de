#pragma once

/// One-hot reads of lines of an array.
#include "pulsora/detail/transfer/line_read.h"
