#pragma once

/// `UpdateParameters`: pulse type, lengths of pulse trains, update management.
#include "pulsora/detail/pulses/update_parameters.h"
