#include "lrtt_transfer.h"

#include <algorithm>

#include "array_ids.h"
#include "core/backend.h"
#include "lrtt_elements.h"
#include "lrtt_reinit.h"
#include "math_util.h"

namespace RPU {
namespace {

// Floats of drives that are laid out at a time; longer passes are cut, which changes no bit.
constexpr int64_t kDriveBudget = int64_t{1} << 22;
// Rows of T that are computed at a time to measure the gain: on the CPU, what a cache holds.
constexpr int64_t kGainRows = 128;
constexpr int64_t kGainRowsOnGpu = 2048;

template <class T>
std::vector<T> toHost(const Context &context, const Buffer<T> &buffer, int64_t size) {
  std::vector<T> host(static_cast<size_t>(size));
  detail::copyToHost(context, host.data(), buffer.data(), host.size() * sizeof(T));
  return host;
}

template <class T>
Buffer<T> toBuffer(const Context &context, const std::vector<T> &host) {
  Buffer<T> buffer(context, static_cast<int64_t>(host.size()));
  detail::copyFromHost(context, buffer.data(), host.data(), buffer.bytes());
  return buffer;
}

double sum(const std::vector<double> &values) {
  double total = 0.0;
  for (double value : values) total += value;
  return total;
}

double frobenius(const Context &context, MatrixView<const float> a) {
  Buffer<double> squares(context, a.cols);
  sumRows(context, a.cols, a.rows, SquareTerm{a.transposed()}, squares.data());
  return RPU::sqrt(sum(toHost(context, squares, a.cols)));
}

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
      updater_(s.transferUpdate, makeKey(seed, tileId, ArrayId::VisibleUpdate)) {}

LRTTTransfer::Factors LRTTTransfer::readFactors(const Context &context,
                                                const LRTTAdapter &adapter) {
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
  const uint64_t firstRead = total_.transfers * static_cast<uint64_t>(k);
  readA_.run(context, adapter.a().weights(), oneHot, a, firstRead);
  readB_.run(context, adapter.b().weights().transposed(), oneHot, b, firstRead);
  const bool swap = settings_.params.swap_xd;
  return {(swap ? b : a).transposed(), (swap ? a : b).transposed()};
}

void LRTTTransfer::run(const Context &context, PulsedDevice &visible, const LRTTAdapter &adapter) {
  latest_ = TransferStats{};
  latest_.transfers = 1;
  latest_.normA = frobenius(context, adapter.a().weights());
  latest_.normB = frobenius(context, adapter.b().weights().transposed());
  Buffer<float> before(context, visible.size());
  detail::copyBytes(context, before.data(), visible.weights().data, before.bytes());
  const uint64_t pulsesBefore = visible.pulseCount(context);

  send(context, visible, readFactors(context, adapter));

  latest_.pulses = visible.pulseCount(context) - pulsesBefore;
  latest_.saturatedCells = visible.saturatedCells(context);
  measureGain(context, before, visible, {adapter.dFactor(), adapter.xFactor()});
  total_.add(latest_);
}

void LRTTTransfer::send(const Context &context, PulsedDevice &visible, const Factors &factors) {
  const PulseType type = settings_.transferUpdate.pulse_type;
  if (settings_.params.transfer_mode == TransferMode::Exact) {
    writeDigitally(context, visible, factors);
  } else if (type == PulseType::None || type == PulseType::NoneWithDevice) {
    updater_.update(context, visible, factors.x.transposed(), factors.d.transposed(),
                    -settings_.transferLr, trainsSent_);
    trainsSent_ += static_cast<uint64_t>(settings_.rank);
  } else {
    sendTrains(context, visible, factors,
               planTransfer(context, settings_, visible.granularity(), factors.d, factors.x));
  }
}

void LRTTTransfer::writeDigitally(const Context &context, PulsedDevice &visible,
                                  const Factors &factors) {
  Buffer<float> delta(context, visible.size());
  const auto target = rowMajor(delta.data(), visible.rows(), visible.cols());
  gemm(context, settings_.transferLr, factors.d, factors.x.transposed(), 0.0f, target);
  visible.addWeights(context, target, kWriteEvents + total_.transfers);
}

void LRTTTransfer::sendTrains(const Context &context, PulsedDevice &visible, const Factors &factors,
                              const TransferPlan &plan) {
  const int64_t rank = settings_.rank;
  std::vector<float> xScales, dScales;
  for (const ComponentPlan &component : plan.components) {
    latest_.driven += component.driven;
    latest_.wanted += component.wanted;
    latest_.clippedComponents += component.clipped;
    xScales.push_back(component.xScale);
    dScales.push_back(component.dScale);
  }
  const Buffer<float> xScale = toBuffer(context, xScales);
  const Buffer<float> dScale = toBuffer(context, dScales);
  const int64_t mostTrains = std::max<int64_t>(1, kDriveBudget / (visible.rows() + visible.cols()));
  Buffer<float> xDrives, dDrives;
  const float lr = settings_.transferLr < 0.0f ? plan.lr : -plan.lr;  // an update descends

  const auto flush = [&](std::vector<int32_t> &trains) {
    const auto count = static_cast<int64_t>(trains.size());
    if (count == 0) return;
    const Buffer<int32_t> components = toBuffer(context, trains);
    xDrives.reserve(context, count * visible.cols());
    dDrives.reserve(context, count * visible.rows());
    forEach(context, count * visible.cols(),
            TrainDrives{factors.x, components.data(), xScale.data(), xDrives.data()});
    forEach(context, count * visible.rows(),
            TrainDrives{factors.d, components.data(), dScale.data(), dDrives.data()});
    updater_.update(context, visible, rowMajor<const float>(xDrives.data(), count, visible.cols()),
                    rowMajor<const float>(dDrives.data(), count, visible.rows()), lr, trainsSent_);
    trainsSent_ += static_cast<uint64_t>(count);
    trains.clear();
  };

  std::vector<int32_t> trains;
  for (int64_t k = 0; k < rank; ++k) {
    // A pass begins at every rank_chunk-th component, counted from rank_offset.
    if ((k - settings_.params.rank_offset) % settings_.chunk() == 0) flush(trains);
    for (int t = 0; t < plan.components[static_cast<size_t>(k)].trains; ++t) {
      trains.push_back(static_cast<int32_t>(k));
      if (static_cast<int64_t>(trains.size()) == mostTrains) flush(trains);
    }
  }
  flush(trains);
  latest_.trains = static_cast<uint64_t>(plan.trains());
}

void LRTTTransfer::measureGain(const Context &context, const Buffer<float> &before,
                               const PulsedDevice &visible, const Factors &exact) {
  const int64_t rows = visible.rows();
  const int64_t cols = visible.cols();
  const int64_t most = std::min(rows, context.onCpu() ? kGainRows : kGainRowsOnGpu);
  Buffer<float> block(context, most * cols);
  Buffer<double> delivered(context, rows);
  Buffer<double> intended(context, rows);
  for (int64_t start = 0; start < rows; start += most) {
    const int64_t count = std::min(most, rows - start);
    const auto target = rowMajor(block.data(), count, cols);
    gemm(context, settings_.transferLr, exact.d.block(start, 0, count, settings_.rank),
         exact.x.transposed(), 0.0f, target);
    const auto old = rowMajor<const float>(before.data() + start * cols, count, cols);
    const auto now = visible.weights().block(start, 0, count, cols);
    sumRows(context, count, cols, DeliveredTerm{old, now, target}, delivered.data() + start);
    sumRows(context, count, cols, SquareTerm{target}, intended.data() + start);
  }
  latest_.delivered = sum(toHost(context, delivered, rows));
  latest_.intended = sum(toHost(context, intended, rows));
}

}  // namespace RPU
