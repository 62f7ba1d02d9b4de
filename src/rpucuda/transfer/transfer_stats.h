#pragma once

#include <cstdint>
#include <string>

#include "core/platform.h"
#include "parameters/value.h"
#include "storage/state.h"

namespace pulsora {

/// The change that transfers delivered, compared with T = lr d x^T, the factors taken when each was
/// due. Sums run over transfers. Plain data, so that a GPU can add it up.
struct TransferStats {
  uint64_t transfers = 0;
  uint64_t sendings = 0;           ///< attempts; more than transfers if verified
  uint64_t trains = 0;             ///< pulse trains sent
  uint64_t pulses = 0;             ///< coincidences in the array that is written
  uint64_t clippedComponents = 0;  ///< components that pulse trains could not carry in full
  double delivered = 0.0;          ///< <W' - W, T>
  double intended = 0.0;           ///< <T, T>
  /// Expected sum over components and cells of |change|, as the pulse trains carry it.
  double driven = 0.0;
  double wanted = 0.0;  ///< sum over components and cells of |T_k|
  double normA = 0.0;   ///< Frobenius norm of the first factor (an adapter's A), of the latest
  double normB = 0.0;   ///< Frobenius norm of the second factor (B), of the latest

  /// <W' - W, T> / <T, T>: 1 if everything arrived; 0 if nothing was to be sent.
  PULSORA_HD double gain() const { return intended > 0.0 ? delivered / intended : 0.0; }
  /// Share of `wanted` that clipped pulse trains could not carry.
  double undelivered() const { return wanted > 0.0 ? 1.0 - driven / wanted : 0.0; }
  Value::Map describe() const;
  void saveTo(State &state, const std::string &prefix) const;
  /// StateError if a number is missing.
  static TransferStats loadFrom(const State &state, const std::string &prefix);

  PULSORA_HD void add(const TransferStats &o) {
    transfers += o.transfers;
    sendings += o.sendings;
    trains += o.trains;
    pulses += o.pulses;
    clippedComponents += o.clippedComponents;
    delivered += o.delivered;
    intended += o.intended;
    driven += o.driven;
    wanted += o.wanted;
    normA = o.normA;
    normB = o.normB;
  }
};

}  // namespace pulsora
