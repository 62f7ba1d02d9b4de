#pragma once

#include <cstdint>

#include "array/cell_programmer.h"
#include "parameters/field_types.h"
#include "pulses/update_parameters.h"

namespace pulsora {

/// How a sum of outer products is written onto an array.
enum class TransferMode {
  Auto,         ///< WriteVerify where pulses are sent, else Lossless; in users' settings alone
  Lossless,     ///< as many pulse trains per component as its largest element needs
  Single,       ///< one pulse train per component, clipped where it cannot carry all
  Exact,        ///< a digital write
  Verified,     ///< lossless, then read back; missing parts are sent again
  WriteVerify,  ///< each cell is read and pulsed until it lies at its target
};
template <>
struct EnumNames<TransferMode> {
  static constexpr const char *kNames[] = {"auto",  "lossless", "single",
                                           "exact", "verified", "write_verify"};
};

/// How lines are read for a transfer.
enum class TransferRead { Exact, Analog };
template <>
struct EnumNames<TransferRead> {
  static constexpr const char *kNames[] = {"exact", "analog"};
};

/// Common settings of the transfers onto one array: each writes T = lr sum_k d_k x_k^T, a sum of
/// `components` outer products.
struct TransferRule {
  int64_t components = 1;
  float lr = 1.0f;  ///< of either sign
  TransferMode mode = TransferMode::Lossless;
  int maxTrains = 64;       ///< per component and round
  int rounds = 3;           ///< Verified: most times that T is read back and sent again
  ProgramSettings program;  ///< WriteVerify
  /// Components that are sent at a time, and the component at which a pass begins; the bits do not
  /// depend on these two.
  int64_t chunk = 1;
  int64_t offset = 0;
  UpdateParameters update;  ///< of the pulse trains
  /// Whether x is the first factor of the caller and d the second; the report gives their norms in
  /// that order.
  bool xIsFirst = false;

  /// Number of attempts of one transfer: each plans and sends pulse trains.
  int sendings() const { return mode == TransferMode::Verified && sendsPulses() ? 1 + rounds : 1; }
  /// Whether pulse trains carry a transfer; otherwise T is added in floating point, or with
  /// WriteVerify by counted pulses.
  bool sendsPulses() const {
    return mode != TransferMode::Exact && mode != TransferMode::WriteVerify &&
           !isDigital(update.pulse_type);
  }
};

}  // namespace pulsora
