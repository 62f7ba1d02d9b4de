#pragma once

#include "pulsora/detail/transfer/pulse_transfer.h"
