#pragma once

/// Replacement of a file as a whole or not at all (`replaceFile`).
#include "pulsora/detail/storage/atomic_write.h"
