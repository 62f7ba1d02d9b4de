#pragma once

/// A read of an array with low-rank chains of two arrays added (injection).
#include "pulsora/detail/periphery/additive_reads.h"
