#pragma once

#include "pulsora/detail/storage/state.h"
