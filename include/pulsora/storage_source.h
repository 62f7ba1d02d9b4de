#pragma once

/// `StorageSource`: another library's allocator, from which buffers on GPUs take their storage.
#include "pulsora/detail/core/storage_source.h"
