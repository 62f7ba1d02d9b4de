#pragma once

#include "pulsora/detail/storage/atomic_write.h"
