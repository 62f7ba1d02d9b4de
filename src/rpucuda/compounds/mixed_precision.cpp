#include "compounds/mixed_precision.h"

#include <algorithm>
#include <cmath>

#include "array/events.h"
#include "compounds/one_sided.h"
#include "compounds/single.h"
#include "core/backend.h"
#include "linalg/math_util.h"
#include "numerics/abs_max.h"
#include "periphery/additive_reads.h"

namespace pulsora {
namespace {

using Unit = TransferSchedule::Unit;

// A ratio of steps that is a whole number but for its rounding is that number.
float wholeIfNear(float ratio) {
  const float near = std::rint(ratio);
  return std::fabs(ratio - near) <= 1e-5f * ratio ? near : ratio;
}

UpdateParameters managed(UpdateParameters update) {
  update.update_management = update.update_bl_management = true;
  return update;
}

}  // namespace

MixedPrecisionDevice::MixedPrecisionDevice(const MixedPrecisionParams &params,
                                           const CompoundSite &site)
    : params_(params),
      cells_(params.makeCells(site)),
      trains_(managed(site.periphery.update)),
      updateKey_(site.keys.of(0, Role::Update)),
      transferKey_(site.keys.of(0, Role::Transfer)),
      slots_(cells_->arrays().front().array->cells().slotCounter()),
      step_(cells_->countedStep()),
      unit_(params.granularity > 0.0f ? params.granularity : step_),
      schedule_(params.transfer_every, Unit::MiniBatches) {
  const PulseType type = site.periphery.update.pulse_type;
  PULSORA_CHECK(ConfigError, !isDigital(type), "update.pulse_type is '", nameOf(type),
                "', but cells follow their digital weight by pulses; use "
                "'stochastic_compressed', or IdealConfig for weights in floating point");
  PULSORA_CHECK(ConfigError, step_ > 0.0f, "gamma_vec: a pulse changes the weight by ", step_,
                ", so that cells could not follow; give factors with a sum above 0");
  PULSORA_CHECK(ConfigError, params.n_rows_per_transfer <= dSize(), "n_rows_per_transfer is ",
                params.n_rows_per_transfer, ", and the tile has ", dSize(),
                " rows; give as many at most, or 0 for all");
  if (params.digital_weight) sent_ = Buffer<float>::zeros(site.context, dSize() * xSize());
}

int64_t MixedPrecisionDevice::rowsPerTransfer() const {
  return params_.n_rows_per_transfer == 0 ? dSize() : params_.n_rows_per_transfer;
}

// Rows that are sent at once: their counts fit into 64 MiB.
int64_t MixedPrecisionDevice::piece() const {
  constexpr int64_t kFloats = int64_t{1} << 24;
  return std::min(rowsPerTransfer(), std::max<int64_t>(1, kFloats / xSize()));
}

void MixedPrecisionDevice::requireRoom(int64_t transfers) const {
  pulsora::requireRoom(rowsSent_, static_cast<uint64_t>(transfers * rowsPerTransfer()),
                       kMostCounted, "rows of transfers");
}

// The rounded inputs, or these themselves if nothing is to be done.
MatrixView<const float> MixedPrecisionDevice::binned(const Context &context,
                                                     MatrixView<const float> in, bool isX,
                                                     float factor, const Counters &c) {
  const int bins = isX ? params_.n_x_bins : params_.n_d_bins;
  const int largestBin = bins / 2;
  if (bins == 0 && factor == 1.0f) return in;
  float *out = (isX ? xBinned_ : dBinned_).data();
  if (bins > 0) rowAbsMax(context, in, largest_.data());
  forEach(context, in.size(),
          BinnedInput{in, largest_.data(), static_cast<float>(largestBin),
                      isX ? params_.stoc_round_x : params_.stoc_round_d, transferKey_,
                      isX ? Purpose::XRound : Purpose::DRound, c.updateSamples, factor, out});
  return rowMajor<const float>(out, in.rows, in.cols);
}

void MixedPrecisionDevice::update(const Context &context, MatrixView<const float> x,
                                  MatrixView<const float> d, float lr, const Counters &c) {
  if (x.rows == 0) return;
  reserveUpdate(context, x.rows, lr);
  if (!owes_) detail::fillZero(context, owed_.data(), owed_.bytes());
  owes_ = true;
  const MatrixView<const float> inputs = binned(context, x, true, 1.0f, c);
  const MatrixView<const float> scaled = binned(context, d, false, -lr, c);
  accumulate(context, scaled.transposed(), inputs, matrix(owed_));
}

void MixedPrecisionDevice::reserveUpdate(const Context &context, int64_t samples, float) {
  owed_.reserve(context, dSize() * xSize());
  dBinned_.reserve(context, samples * dSize());
  if (params_.n_x_bins > 0) xBinned_.reserve(context, samples * xSize());
  if (params_.n_x_bins > 0 || params_.n_d_bins > 0) largest_.reserve(context, samples);
}

void MixedPrecisionDevice::prepareUpdate(const Context &context, int64_t, int64_t longest,
                                         float lr) {
  prepareFollow(context);
  reserveUpdate(context, longest, lr);
}

void MixedPrecisionDevice::prepareFollow(const Context &context) {
  requireRoom(1);
  if (isDue()) reserveTransfer(context);
  cells_->prepareUpdate(context, 0, 0, 1.0f);
}

void MixedPrecisionDevice::reserveTransfer(const Context &context) {
  const int64_t rows = piece();
  counts_.reserve(context, rows * xSize());
  cells_->reserveCounts(context, rows);
  if (params_.exact_counts) return;
  lines_.reserve(context, rows, xSize(), true, unit_ * params_.transfer_lr, step_, trains_);
}

void MixedPrecisionDevice::postUpdate(const Context &context, float, const Counters &c) {
  endBatch(context, c, {});
}

void MixedPrecisionDevice::follow(const Context &context, MatrixView<const float> master,
                                  const Counters &c) {
  PULSORA_CHECK(ConfigError, params_.digital_weight,
                "digital_weight is False, so that the tile adds up outer products and has no "
                "digital weight to follow; set digital_weight to True, or call update(x, d, lr)");
  endBatch(context, c, master);
}

void MixedPrecisionDevice::endBatch(const Context &context, const Counters &c,
                                    MatrixView<const float> master) {
  prepareFollow(context);
  const std::vector<NamedArray> all = arrays();  // takes memory, so before anything changes
  if (isDue()) {
    if (master.data && owes_) {  // what update() has added lags behind too
      addScaled(context, {owed_.data(), -1.0f, matrix(sent_)});
      owes_ = false;
    }
    if (master.data) {
      transfer(context, master, matrix(sent_));
    } else if (owes_) {
      transfer(context, {}, matrix(owed_));
    }
    rowsSent_ += static_cast<uint64_t>(rowsPerTransfer());
  }
  cells_->endMiniBatch(context, all, c);
  schedule_.passed(Unit::MiniBatches, 1);
}

// Sends the rows of one transfer, a piece after another.
void MixedPrecisionDevice::transfer(const Context &context, MatrixView<const float> master,
                                    MatrixView<float> digital) {
  LineVisits rows;
  rows.lines = dSize();
  rows.count = rowsPerTransfer();
  rows.first = rowsSent_;
  rows.origin = origin_;
  rows.together = rowsPerTransfer();
  rows.random = params_.random_row;
  rows.key = transferKey_;
  for (int64_t begin = 0; begin < rows.count; begin += piece())
    send(context, rows.part(begin, std::min(rows.count, begin + piece())), master, digital);
}

void MixedPrecisionDevice::send(const Context &context, const LineVisits &rows,
                                MatrixView<const float> master, MatrixView<float> digital) {
  const float perUnit = wholeIfNear(unit_ * params_.transfer_lr / step_);
  const float most = std::max(1.0f, std::floor(static_cast<float>(params_.bl_max) / perUnit));
  const int64_t elements = rows.count * xSize();
  forEach(context, elements,
          LagTaker{rows, master, digital, unit_, most, params_.exact_counts ? perUnit : 0.0f,
                   updateKey_, rows.first, context.nonfiniteFlag, counts_.data()});
  if (!params_.exact_counts) {
    const auto units = rowMajor<const float>(counts_.data(), rows.count, xSize());
    lines_.count(context, units, true, -unit_ * params_.transfer_lr, step_, trains_, updateKey_,
                 rows.first, counts_.data(), slots_);
  }
  cells_->applyCounts(context, {rows, false, false, counts_.data(), rows.first});
}

void MixedPrecisionDevice::setWeights(const Context &context, MatrixView<const float> weights,
                                      const Counters &c) {
  cells_->setWeights(context, weights, c);
  if (!sent_.empty()) copy(context, weights, matrix(sent_));
  owes_ = false;
  origin_ = rowsSent_;
  schedule_.restart();
}

Value::Map MixedPrecisionDevice::explain(const Context &context, MatrixView<const float> x,
                                         MatrixView<const float> d, float lr) const {
  double largest = 0.0;
  Buffer<float> maxima(context, 2 * x.rows);
  rowAbsMax(context, x, maxima.data());
  rowAbsMax(context, d, maxima.data() + x.rows);
  std::vector<float> each(static_cast<size_t>(2 * x.rows));
  detail::copyToHost(context, each.data(), maxima.data(), maxima.bytes());
  for (size_t s = 0; s < each.size() / 2; ++s)
    largest += static_cast<double>(each[s]) * static_cast<double>(each[each.size() / 2 + s]);
  largest *= std::fabs(static_cast<double>(lr));
  const double units = largest / static_cast<double>(unit_);
  Value::List warnings;
  if (units > static_cast<double>(params_.bl_max))
    warnings.emplace_back(message(
        "a cell may have to change by ", units, " steps, and a transfer sends ", params_.bl_max,
        " pulses to a cell at most, so that cells lag behind; raise bl_max, or "
        "lower the learning rate"));
  return {{"samples", Value(x.rows)},
          {"granularity", Value(static_cast<double>(unit_))},
          {"pulses_per_unit",
           Value(static_cast<double>(wholeIfNear(unit_ * params_.transfer_lr / step_)))},
          {"transfer_every", Value(params_.transfer_every)},
          {"rows_per_transfer", Value(rowsPerTransfer())},
          {"largest_steps", Value(units)},
          {"warnings", Value(std::move(warnings))}};
}

Value::Map MixedPrecisionDevice::statistics(const Context &context) const {
  Value::Map map = cells_->statistics(context);
  map["rows_sent"] = Value(rowsSent_);
  map["memory_bytes"] = Value(static_cast<uint64_t>(memoryBytes()));
  return map;
}

void MixedPrecisionDevice::countHardware(const Counters &c, HardwareCounts &counts) const {
  cells_->countHardware(c, counts);
  countDigitalUpdates(c, counts);
  counts.addLines(arraysOf().front().name, rowsSent_);
  counts.addTransfers(rowsSent_ / static_cast<uint64_t>(rowsPerTransfer()));
}

// A state has the same tensors at all times.
Buffer<float> MixedPrecisionDevice::zerosUnless(const Context &context, bool exists) const {
  return exists ? Buffer<float>() : Buffer<float>::zeros(context, dSize() * xSize());
}

void MixedPrecisionDevice::saveTo(const Context &context, State &state,
                                  const std::string &prefix) const {
  cells_->saveTo(context, state, prefix);
  const std::vector<int64_t> shape{dSize(), xSize()};
  if (!sent_.empty()) state.put(context, prefix + "sent", Tensor::Type::F32, shape, sent_);
  const Buffer<float> none = zerosUnless(context, owes_);
  state.put(context, prefix + "owed", Tensor::Type::F32, shape, owes_ ? owed_ : none);
  schedule_.saveTo(state, prefix + "since_transfer");
  state.values[prefix + "rows_sent"] = Value(rowsSent_);
  state.values[prefix + "first_row"] = Value(origin_);
  state.values[prefix + "owes"] = Value(owes_ ? 1 : 0);
}

void MixedPrecisionDevice::loadFrom(const Context &context, const State &state,
                                    const std::string &prefix) {
  TransferSchedule schedule = schedule_;
  schedule.loadFrom(state, prefix + "since_transfer");
  const uint64_t rows = state.counter(prefix + "rows_sent", kMostCounted);
  const uint64_t origin = state.counter(prefix + "first_row", rows);
  const std::vector<int64_t> shape{dSize(), xSize()};
  const bool owes = state.flag(prefix + "owes");
  // Numbers and tensors of packed states may come one after another.
  const bool keeps = state.packed && !owed_.empty();
  Buffer<float> owed = keeps ? std::move(owed_) : zerosUnless(context, false);
  cells_->loadFrom(context, state, prefix);
  if (!sent_.empty()) state.take(context, prefix + "sent", Tensor::Type::F32, shape, sent_);
  state.take(context, prefix + "owed", Tensor::Type::F32, shape, owed);
  owed_ = std::move(owed);
  owes_ = owes;
  schedule_ = schedule;
  rowsSent_ = rows;
  origin_ = origin;
}

}  // namespace pulsora
