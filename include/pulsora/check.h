#pragma once

/// The exceptions (`ConfigError`, `InputError`, `StateError`, ...) and the macro PULSORA_CHECK.
#include "pulsora/detail/core/check.h"
