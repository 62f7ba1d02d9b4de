#pragma once

#include <cstdint>
#include <string>

#include "array/program_cells.h"
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
  double wanted = 0.0;       ///< sum over components and cells of |T_k|
  uint64_t slots = 0;        ///< WriteVerify: time slots of pulses, lines one after another
  uint64_t reads = 0;        ///< WriteVerify: reads of a cell
  uint64_t outside = 0;      ///< WriteVerify: cells that end farther from target than the tolerance
  uint64_t mostPulses = 0;   ///< WriteVerify: largest number of pulses of a cell in one transfer
  double errorSum = 0.0;     ///< WriteVerify: sum over cells of target - weight
  double errorSquare = 0.0;  ///< WriteVerify: sum of its squares
  uint64_t cells = 0;        ///< WriteVerify: cells that were verified
  double normA = 0.0;        ///< Frobenius norm of the first factor (an adapter's A), of the latest
  double normB = 0.0;        ///< Frobenius norm of the second factor (B), of the latest

  /// <W' - W, T> / <T, T>: 1 if everything arrived; 0 if nothing was to be sent.
  PULSORA_HD double gain() const { return intended > 0.0 ? delivered / intended : 0.0; }
  /// Share of `wanted` that clipped pulse trains could not carry.
  double undelivered() const { return wanted > 0.0 ? 1.0 - driven / wanted : 0.0; }
  /// Root mean square of target - weight over the verified cells.
  double error() const;
  Value::Map describe() const;
  /// `verifies` says whether transfers are by WriteVerify, whose numbers no other mode has.
  void saveTo(State &state, const std::string &prefix, bool verifies) const;
  /// StateError if a number is missing.
  static TransferStats loadFrom(const State &state, const std::string &prefix, bool verifies);

  /// Takes the counts of a transfer by WriteVerify.
  PULSORA_HD void take(const ProgramCounts &c, float tolerance) {
    const double part =
        static_cast<double>(tolerance) / static_cast<double>(ProgramCounts::kErrorParts);
    slots = c.slots;
    reads = c.reads;
    outside = c.outside;
    mostPulses = c.most;
    errorSum = static_cast<double>(c.error) * part;
    errorSquare = static_cast<double>(c.square) * part * part;
    cells = c.cells;
  }

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
    slots += o.slots;
    reads += o.reads;
    outside += o.outside;
    mostPulses = o.mostPulses > mostPulses ? o.mostPulses : mostPulses;
    errorSum += o.errorSum;
    errorSquare += o.errorSquare;
    cells += o.cells;
    normA = o.normA;
    normB = o.normB;
  }
};

}  // namespace pulsora
