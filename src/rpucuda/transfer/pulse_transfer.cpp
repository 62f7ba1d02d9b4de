#include "transfer/pulse_transfer.h"

#include <algorithm>

#include "compounds/array_ids.h"
#include "core/backend.h"
#include "lrtt/functors.h"
#include "lrtt/reinit.h"
#include "core/math_util.h"

namespace RPU {
namespace {

// Rows of T that are computed at a time to measure what arrived: what a cache holds.
constexpr int64_t kAlignedRows = 128;

}  // namespace

LRTTTransfer::LRTTTransfer(const Context &context, const LRTTSettings &s,
                           const IOParameters &forward, const IOParameters &backward, uint64_t seed,
                           uint32_t tileId)
    : settings_(s),
      // Used transposed, an array's forward direction serves the tile's backward.
      readA_(context, s.params.swap_xd ? backward : forward, Pass::Forward, s.rank, s.outputs,
             makeKey(seed, tileId, ArrayId::TransferAIo)),
      readB_(context, s.params.swap_xd ? forward : backward, Pass::Backward, s.rank, s.inputs,
             makeKey(seed, tileId, ArrayId::TransferBIo)),
      updater_(s.transferUpdate, makeKey(seed, tileId, ArrayId::VisibleUpdate)),
      stats_(Buffer<TransferStats>::zeros(context, 2)) {}

TransferFactors LRTTTransfer::readFactors(const Context &context, const LRTTAdapter &adapter) {
  if (settings_.params.transfer_read == TransferRead::Exact)
    return {adapter.dFactor(), adapter.xFactor()};
  const int64_t k = settings_.rank;
  Buffer<float> unit(context, k * k);
  forEach(context, k * k, UnitMatrix{k, unit.data()});
  const auto oneHot = rowMajor<const float>(unit.data(), k, k);
  readValuesA_.reserve(context, k * settings_.outputs);
  readValuesB_.reserve(context, k * settings_.inputs);
  const auto a = rowMajor(readValuesA_.data(), k, settings_.outputs);
  const auto b = rowMajor(readValuesB_.data(), k, settings_.inputs);
  // Component j of a transfer is read as sample (transfers * K + j), whatever the passes.
  const uint64_t firstRead = transfers_ * static_cast<uint64_t>(k);
  readA_.run(context, adapter.a().weights(), oneHot, a, firstRead);
  readB_.run(context, adapter.b().weights().transposed(), oneHot, b, firstRead);
  const bool swap = settings_.params.swap_xd;
  return {(swap ? b : a).transposed(), (swap ? a : b).transposed()};
}

uint64_t LRTTTransfer::firstSample() const {
  return transfers_ * static_cast<uint64_t>(settings_.rank) *
         static_cast<uint64_t>(settings_.params.transfer_max_trains);
}

void LRTTTransfer::run(const Context &context, PulsedDevice &visible, const LRTTAdapter &adapter) {
  const TransferFactors exact{adapter.dFactor(), adapter.xFactor()};
  const TransferPlanner plan = planInto(context, settings_, visible.granularity(),
                                        readFactors(context, adapter), exact, plan_);
  rowSums_.reserve(context, 3 * visible.rows());
  double *before = rowSums_.data();
  double *after = before + visible.rows();
  double *intended = after + visible.rows();
  align(context, visible, exact, before, intended);
  send(context, visible, plan);
  align(context, visible, exact, after, nullptr);
  const TransferTally tally{
      plan.components, settings_.rank, settings_.params.swap_xd, before,        after,
      intended,        visible.rows(), visible.pulseCounter(),   stats_.data(), stats_.data() + 1};
  if (context.onCpu()) {
    tally.count(OneThread{});
  } else {
    cudaCountTransfer(context, tally);
  }
  ++transfers_;
}

void LRTTTransfer::send(const Context &context, PulsedDevice &visible,
                        const TransferPlanner &plan) {
  if (settings_.params.transfer_mode == TransferMode::Exact) {
    writeDigitally(context, visible, plan.sent);
  } else if (!plan.rule.sends) {
    updater_.update(context, visible, plan.sent.x.transposed(), plan.sent.d.transposed(),
                    -settings_.transferLr, firstSample());
  } else {
    sendTrains(context, visible, plan);
  }
}

void LRTTTransfer::writeDigitally(const Context &context, PulsedDevice &visible,
                                  const TransferFactors &factors) {
  Buffer<float> delta(context, visible.size());
  const auto target = rowMajor(delta.data(), visible.rows(), visible.cols());
  gemm(context, settings_.transferLr, factors.d, factors.x.transposed(), 0.0f, target);
  visible.addWeights(context, target, kWriteEvents + transfers_);
}

void LRTTTransfer::sendTrains(const Context &context, PulsedDevice &visible,
                              const TransferPlanner &plan) {
  const float lr = settings_.transferLr < 0.0f ? plan.rule.lr() : -plan.rule.lr();  // descends
  for (int64_t p = 0; p < plan.passes.count(); ++p) {
    const int64_t start = plan.passes.start(p);
    SampleRange samples{firstSample() + static_cast<uint64_t>(start), plan.passes.end(p) - start,
                        nullptr};
    int64_t trains = samples.room;
    if (context.onCpu()) {
      trains = plan.present[p];
    } else {
      samples.present = plan.present + p;
    }
    // The last pass leaves the write noise of all, as on a GPU, where none is left out.
    if (trains == 0 && p + 1 < plan.passes.count()) continue;
    xDrives_.reserve(context, trains * visible.cols());
    dDrives_.reserve(context, trains * visible.rows());
    forEach(context, trains * (visible.cols() + visible.rows()),
            TrainDrives{plan.sent, plan.components, plan.starts, start, xDrives_.data(),
                        dDrives_.data()});
    updater_.update(context, visible,
                    rowMajor<const float>(xDrives_.data(), trains, visible.cols()),
                    rowMajor<const float>(dDrives_.data(), trains, visible.rows()), lr, samples);
  }
}

// Per row of W, its product with T, and unless `squares` is null that of T with itself.
void LRTTTransfer::align(const Context &context, const PulsedDevice &visible,
                         const TransferFactors &exact, double *aligned, double *squares) {
  if (!context.onCpu()) {
    cudaAlignRows(context, visible.weights(), exact, settings_.transferLr, aligned, squares);
    return;
  }
  const int64_t cols = visible.cols();
  const int64_t most = std::min(visible.rows(), kAlignedRows);
  Buffer<float> block(context, most * cols);
  for (int64_t start = 0; start < visible.rows(); start += most) {
    const int64_t count = std::min(most, visible.rows() - start);
    const auto target = rowMajor(block.data(), count, cols);
    gemm(context, settings_.transferLr, exact.d.block(start, 0, count, settings_.rank),
         exact.x.transposed(), 0.0f, target);
    const auto weights = visible.weights().block(start, 0, count, cols);
    sumRows(context, count, cols, ProductTerm{weights, target}, aligned + start);
    if (squares) sumRows(context, count, cols, ProductTerm{target, target}, squares + start);
  }
}

}  // namespace RPU
