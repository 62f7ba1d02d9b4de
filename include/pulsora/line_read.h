#pragma once

#include "pulsora/detail/transfer/line_read.h"
