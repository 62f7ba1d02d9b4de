#pragma once

#include "pulsora/detail/storage/state_file.h"
