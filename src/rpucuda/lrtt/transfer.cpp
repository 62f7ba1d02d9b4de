#include "lrtt/transfer.h"

#include <algorithm>

#include "array/events.h"

namespace pulsora {

LRTTTransfer::LRTTTransfer(const Context &context, const LRTTSettings &s,
                           const TilePeriphery &around, const TileKeys &keys)
    : settings_(s),
      // With swap_xd, an array's forward direction serves the tile's backward.
      readA_(context, s.params.swap_xd ? around.backward : around.forward, Pass::Forward, s.rank,
             s.outputs, keys.ofRead(LRTTAdapter::kSlotA, Role::Transfer), s.readLimitsOfFactors()),
      readB_(context, s.params.swap_xd ? around.forward : around.backward, Pass::Backward, s.rank,
             s.inputs, keys.ofRead(LRTTAdapter::kSlotB, Role::Transfer),
             s.readLimitsOfFactors().reversed()),
      sender_(context, s.transferRule(), keys.of(LRTTAdapter::kSlotVisible, Role::Update)) {
  if (s.params.verify_read == TransferRead::Exact) return;
  const bool columns = CellVerifier::drivesColumns(s.dSize, s.xSize);
  const IOParameters &io = columns ? around.forward : around.backward;
  if (io.is_perfect) return;
  const ProgramSettings program = sender_.rule().program;
  const AutoInt &reads = s.params.verify_reads;
  verifier_.emplace(context, around.forward, around.backward, s.dSize, s.xSize,
                    keys.ofRead(LRTTAdapter::kSlotVisible, Role::Transfer), program,
                    reads.automatic ? readsFor(io, program.tolerance) : reads.value);
}

TransferFactors LRTTTransfer::readFactors(const Context &context, const LRTTAdapter &adapter) {
  if (settings_.params.transfer_read == TransferRead::Exact)
    return {adapter.dFactor(), adapter.xFactor()};
  // Component j of a transfer is read as sample (transfers * K + j), whatever the passes.
  const uint64_t firstRead = count() * static_cast<uint64_t>(settings_.rank);
  const auto a = readA_.run(context, adapter.a().weights(), firstRead);
  const auto b = readB_.run(context, adapter.b().weights().transposed(), firstRead);
  const bool swap = settings_.params.swap_xd;
  return {(swap ? b : a).transposed(), (swap ? a : b).transposed()};
}

float LRTTTransfer::tolerance() const {
  const float accepted = sender_.rule().program.tolerance;
  return verifier_ ? std::max(accepted, static_cast<float>(2.0 * verifier_->error())) : accepted;
}

uint64_t LRTTTransfer::most() const {
  uint64_t sent = sender_.mostTransfers();
  if (verifier_) sent = std::min(sent, verifier_->mostRuns() / 2);
  if (settings_.params.transfer_read == TransferRead::Exact) return sent;
  return std::min(sent, kMostCounted / static_cast<uint64_t>(settings_.rank));
}

void LRTTTransfer::reserve(const Context &context, PulsedDevice &visible) {
  if (settings_.params.transfer_read == TransferRead::Analog) {
    readA_.reserve(context);
    readB_.reserve(context);
  }
  if (verifier_) verifier_->reserve(context, visible);
  sender_.reserve(context, visible);
}

void LRTTTransfer::run(const Context &context, PulsedDevice &visible, const LRTTAdapter &adapter,
                       MatrixView<const float> weights) {
  sender_.run(context, visible, readFactors(context, adapter),
              {adapter.dFactor(), adapter.xFactor()}, verifier_ ? &*verifier_ : nullptr, weights);
}

void LRTTTransfer::revise(const Context &context, PulsedDevice &visible,
                          const LRTTAdapter &adapter) {
  const RestKeeper &rest = adapter.rest();
  sender_.revise(context, visible,
                 {{adapter.dFactor(), adapter.xFactor()},
                  settings_.transferLr,
                  rest.held(),
                  settings_.params.swap_xd,
                  rest.anyHeld()},
                 verifier_ ? &*verifier_ : nullptr);
}

void LRTTTransfer::saveTo(const Context &context, State &state, const std::string &prefix) const {
  readA_.saveTo(context, state, prefix + "read_a/");
  readB_.saveTo(context, state, prefix + "read_b/");
  sender_.saveTo(context, state, prefix);
}

void LRTTTransfer::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  readA_.loadFrom(context, state, prefix + "read_a/");
  readB_.loadFrom(context, state, prefix + "read_b/");
  sender_.loadFrom(context, state, prefix);
}

}  // namespace pulsora
