#include "transfer/transfer_ledger.h"

#include <algorithm>

#include "array/events.h"
#include "core/backend.h"
#include "linalg/math_util.h"
#include "transfer/line_functors.h"
#include "transfer/program_targets.h"

namespace pulsora {
namespace {

// Rows of T that are computed at a time to measure the change; they fit into a cache.
constexpr int64_t kAlignedRows = 128;

}  // namespace

TransferLedger::TransferLedger(const Context &context)
    : stats_(Buffer<TransferStats>::zeros(context, 2)),
      pulsesBefore_(Buffer<uint64_t>::zeros(context, 1)),
      missing_(Buffer<MissingPart>::zeros(context, 1)) {}

void TransferLedger::reserve(const Context &context, const PulsedDevice &to) {
  rowSums_.reserve(context, 3 * to.rows());
  if (context.onCpu()) block_.reserve(context, std::min(to.rows(), kAlignedRows) * to.cols());
}

void TransferLedger::open(const Context &context, const PulsedDevice &to,
                          const TransferFactors &exact, float lr) {
  reserve(context, to);
  align(context, to, exact, lr, rowSums_.data(), rowSums_.data() + 2 * to.rows());
}

void TransferLedger::close(const Context &context, const PulsedDevice &to,
                           const TransferFactors &exact, const TransferRule &rule,
                           const ComponentPlan *components, int sending,
                           const ProgramCounts *program) {
  const double *before = rowSums_.data();
  double *after = rowSums_.data() + to.rows();
  align(context, to, exact, rule.lr, after, nullptr);
  const TransferTally tally{components,
                            rule.components,
                            to.granularity(),
                            rule.xIsFirst,
                            before,
                            after,
                            after + to.rows(),
                            to.rows(),
                            to.pulseCounter(),
                            pulsesBefore_.data(),
                            program,
                            rule.program.tolerance,
                            sending == 0,
                            sending + 1 == rule.sendings(),
                            missing_.data(),
                            stats_.data(),
                            stats_.data() + 1};
  if (context.onCpu()) {
    tally.count(OneThread{});
  } else {
    cudaCountTransfer(context, tally);
  }
  if (tally.last) ++transfers_;
}

void TransferLedger::revise(const Context &context, const PulsedDevice &to,
                            const ProgramCounts *program, float tolerance, bool readsFirst,
                            const uint32_t *anyHeld) {
  forEach(context, 1,
          RevisionTally{program, tolerance, readsFirst, to.pulseCounter(), pulsesBefore_.data(),
                        anyHeld, stats_.data(), stats_.data() + 1});
}

// Per row i: aligned[i] = sum_j w_ij t_ij and, unless `squares` is null, squares[i] = sum_j t_ij^2.
void TransferLedger::align(const Context &context, const PulsedDevice &to,
                           const TransferFactors &exact, float lr, double *aligned,
                           double *squares) {
  if (!context.onCpu()) {
    cudaAlignRows(context, to.weights(), exact, lr, aligned, squares);
    return;
  }
  const int64_t cols = to.cols();
  const int64_t most = std::min(to.rows(), kAlignedRows);
  for (int64_t start = 0; start < to.rows(); start += most) {
    const int64_t count = std::min(most, to.rows() - start);
    const auto target = rowMajor(block_.data(), count, cols);
    gemm(context, lr, exact.d.block(start, 0, count, exact.d.cols), exact.x.transposed(), 0.0f,
         target);
    const auto weights = to.weights().block(start, 0, count, cols);
    sumRows(context, count, cols, ProductTerm{weights, target}, aligned + start);
    if (squares) sumRows(context, count, cols, ProductTerm{target, target}, squares + start);
  }
}

TransferStats TransferLedger::latest(const Context &context) const {
  return detail::valueOnHost(context, stats_.data());
}

TransferStats TransferLedger::total(const Context &context) const {
  return detail::valueOnHost(context, stats_.data() + 1);
}

void TransferLedger::saveTo(const Context &context, State &state, const std::string &prefix,
                            bool verifies) const {
  if (state.packs(context, prefix + "stats", stats_)) {
    state.values[prefix + "transfers"] = Value(transfers_);
    return;
  }
  total(context).saveTo(state, prefix + "total/", verifies);
  latest(context).saveTo(state, prefix + "last/", verifies);
}

void TransferLedger::loadFrom(const Context &context, const State &state, const std::string &prefix,
                              bool verifies) {
  if (state.unpacks(context, prefix + "stats", stats_)) {
    transfers_ = state.counter(prefix + "transfers", kOwnWrites);
    return;
  }
  const TransferStats stats[2] = {TransferStats::loadFrom(state, prefix + "last/", verifies),
                                  TransferStats::loadFrom(state, prefix + "total/", verifies)};
  detail::copyFromHost(context, stats_.data(), stats, sizeof stats);
  transfers_ = state.counter(prefix + "total/transfers", kOwnWrites);
}

}  // namespace pulsora
