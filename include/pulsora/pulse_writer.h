#pragma once

#include "pulsora/detail/transfer/pulse_writer.h"
