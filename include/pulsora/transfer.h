#pragma once

/// `TransferParams`: settings of a chain of arrays (Tiki-Taka and its successors).
#include "pulsora/detail/compounds/transfer_parameters.h"
