#include "compounds/transfer_device.h"

#include <algorithm>
#include <cmath>

#include "array/events.h"
#include "core/backend.h"
#include "linalg/math_util.h"
#include "numerics/abs_max.h"

namespace pulsora {
namespace {

static_assert(kMostWeighted >= TransferParams::kMostArrays);

// Period between two transfers from each array but the last, in the units of `units_in_mbatch`.
std::vector<int64_t> periodsOf(const TransferParams &p, int64_t lines) {
  std::vector<int64_t> periods;
  double every = static_cast<double>(p.firstPeriod());
  if (every < 0.0) {
    const PulsedParams &cell = p.fast[0].common();
    const double pulses =
        static_cast<double>(cell.w_max - cell.w_min) / static_cast<double>(cell.dw_min);
    return {std::max<int64_t>(1, std::llrint(-every * pulses / static_cast<double>(lines)))};
  }
  for (size_t k = 0; k < p.fast.size(); ++k) {
    if (p.transfer_every_vec.count > 0) every = static_cast<double>(p.transfer_every_vec.values[k]);
    periods.push_back(static_cast<int64_t>(std::ceil(every)));
    every *= static_cast<double>(lines) / static_cast<double>(p.n_reads_per_transfer);
  }
  return periods;
}

LineRule ruleOf(const TransferParams &p, size_t k, int64_t rows, int64_t cols, float from,
                float to) {
  LineRule rule;
  rule.buffer = p.buffer;
  rule.columns = p.transfer_columns;
  rule.lines = p.transfer_columns ? cols : rows;
  rule.others = p.transfer_columns ? rows : cols;
  rule.momentum = p.momentum;
  rule.forget = p.forget_buffer;
  rule.keeps = !p.no_buffer;
  rule.most = p.transfer_update.desired_bl;
  rule.stepChance = p.step;
  rule.stepSize = isDigital(p.transfer_update.pulse_type) ? p.step * to : 0.0f;
  if (p.buffer == TransferBuffer::None) return rule;
  const float mine = p.weightOf(static_cast<int64_t>(k));
  const float next = p.weightOf(static_cast<int64_t>(k) + 1);
  rule.gain = mine > 0.0f && next > 0.0f ? mine / next : 1.0f;
  if (p.buffer == TransferBuffer::Sum) rule.threshold = p.thres_scale * to;
  if (rule.chops()) {
    float threshold = (p.buffer_granularity > 0.0f ? p.buffer_granularity : 1.0f) * from;
    if (p.auto_granularity > 0.0f)
      threshold *=
          p.auto_granularity / (static_cast<float>(rule.lines) * std::abs(p.firstPeriod()));
    rule.gain /= p.correct_gradient_magnitudes ? threshold * (to / from) : threshold;
    rule.lineFlips = p.in_chop_prob;
    rule.otherFlips = p.out_chop_prob;
    rule.regular = !p.in_chop_random;
    if (p.in_chop_prob > 0.0f)
      rule.period = std::max<int64_t>(2, static_cast<int64_t>(std::ceil(1.0f / p.in_chop_prob)));
    rule.tail = std::min(1.0f, p.tail_weightening / static_cast<float>(rule.period));
    rule.cap = p.buffer == TransferBuffer::Dynamic ? p.buffer_cap : 0.0f;
    rule.corrects = p.correct_accumulation;
    rule.mostReads = 1.0f / from;
  }
  return rule;
}

uint32_t slotOf(size_t k, size_t count) {
  return k + 1 == count ? 0 : static_cast<uint32_t>(k) + 1;
}

std::vector<std::unique_ptr<Crossbar>> chainOf(const TransferParams &p, const CompoundSite &site) {
  const PulseType type = site.periphery.update.pulse_type;
  PULSORA_CHECK(ConfigError, !isDigital(type), "update.pulse_type is '", nameOf(type),
                "', which would pass by the chain of arrays; choose a type with pulses, or "
                "IdealConfig for floating-point updates");
  std::vector<std::unique_ptr<Crossbar>> chain;
  const auto count = static_cast<size_t>(p.arrays());
  for (size_t k = 0; k < count; ++k) {
    const bool last = k + 1 == count;
    const DeviceParams &device = last ? p.visible : p.fast[k];
    PULSORA_CHECK(ConfigError, last || device.common().noise_merge != NoiseMerge::Batch, "fast[", k,
                  "].noise_merge is 'batch', but lines of this array are read within mini-batches; "
                  "set it to 'none'");
    chain.push_back(std::make_unique<Crossbar>(site.context, device, site.dSize, site.xSize,
                                               site.periphery, site.keys, slotOf(k, count)));
  }
  return chain;
}

std::vector<const PulsedDevice *> cellsOf(const std::vector<std::unique_ptr<Crossbar>> &chain) {
  std::vector<const PulsedDevice *> cells;
  cells.reserve(chain.size());
  for (const auto &each : chain) cells.push_back(&each->cells());
  return cells;
}

std::vector<float> factorsOf(const TransferParams &p) {
  std::vector<float> factors;
  factors.reserve(static_cast<size_t>(p.arrays()));
  for (int64_t k = 0; k < p.arrays(); ++k) factors.push_back(p.weightOf(k));
  return factors;
}

}  // namespace

TransferDevice::TransferDevice(const TransferParams &p, const CompoundSite &site)
    : params_(p), chain_(chainOf(p, site)), weight_(cellsOf(chain_), factorsOf(p)) {
  const int64_t lines = p.transfer_columns ? site.xSize : site.dSize;
  PULSORA_CHECK(ConfigError, p.n_reads_per_transfer <= lines, "n_reads_per_transfer is ",
                p.n_reads_per_transfer, ", and the tile has ", lines,
                p.transfer_columns ? " columns" : " rows", "; read as many at most");
  const std::vector<int64_t> periods = periodsOf(p, lines);
  const bool batches = p.units_in_mbatch && p.firstPeriod() >= 0.0f;
  for (size_t k = 0; k + 1 < chain_.size(); ++k) {
    const LineSettings settings{
        p.transfer_forward,
        p.transfer_update,
        TransferSchedule(periods[k], batches ? TransferSchedule::Unit::MiniBatches
                                             : TransferSchedule::Unit::Samples),
        p.n_reads_per_transfer,
        p.random_selection,
        p.with_reset_prob};
    transfers_.emplace_back(site.context,
                            ruleOf(p, k, site.dSize, site.xSize, chain_[k]->cells().granularity(),
                                   chain_[k + 1]->cells().granularity()),
                            settings, site.keys, slotOf(k, chain_.size()),
                            slotOf(k + 1, chain_.size()), "transfer_forward");
  }
  if (p.auto_scale) maxima_ = Buffer<float>::zeros(site.context, AutoRates::kSize);
  followSigns();
  weight_.reserve(site.context);
}

// Choppers give the fastest array signs, where W contains it.
void TransferDevice::followSigns() {
  if (params_.weightOf(0) != 0.0f)
    weight_.setSigns(transfers_.front().signs(true), transfers_.front().signs(false));
}

std::vector<NamedArray> TransferDevice::arrays() {
  std::vector<NamedArray> arrays{{"visible", &visible()}};
  for (size_t k = 0; k + 1 < chain_.size(); ++k) arrays.push_back({fastName(k), chain_[k].get()});
  return arrays;
}

std::vector<AnalogRead *> TransferDevice::reads() {
  return {&visible().read(Pass::Forward), &visible().read(Pass::Backward)};
}

void TransferDevice::boundReads(const Context &context) {
  if (!visible().read(Pass::Forward).asksForIntegers() &&
      !visible().read(Pass::Backward).asksForIntegers())
    return;
  std::vector<double> bounds;
  bounds.reserve(chain_.size());
  for (const auto &array : chain_) bounds.push_back(array->weightBound(context));
  for (AnalogRead *read : reads()) read->setWeightBound(weight_.bound(bounds));
}

void TransferDevice::forward(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                             const Counters &c) {
  visible().read(Pass::Forward).run(context, weight_.weights(context), x, y, c.forwardSamples);
}

void TransferDevice::backward(const Context &context, MatrixView<const float> d,
                              MatrixView<float> dx, const Counters &c) {
  visible()
      .read(Pass::Backward)
      .run(context, weight_.weights(context).transposed(), d, dx, c.backwardSamples);
}

// Learning rate of the fastest array, a magnitude.
float TransferDevice::fastRate(float lr) const {
  const float magnitude = std::abs(lr);
  if (params_.fast_lr == 0.0f) return magnitude;
  return params_.scale_fast_lr ? params_.fast_lr * magnitude : params_.fast_lr;
}

// Learning rate of the transfers from array k, a magnitude.
float TransferDevice::transferRate(size_t k, float lr) const {
  const float own =
      params_.transfer_lr_vec.count > 0 ? params_.transfer_lr_vec.values[k] : params_.transfer_lr;
  float rate = params_.scale_transfer_lr ? own * std::abs(lr) : own;
  if (params_.correct_gradient_magnitudes && !params_.auto_scale) {
    const float fast = fastRate(lr);
    rate = fast > 0.0f ? rate / fast : 0.0f;
  }
  return rate;
}

// Samples of a piece: inputs with choppers, reads of lines and their inputs fit into 64 MiB each.
int64_t TransferDevice::longestPiece() const {
  constexpr int64_t kFloats = int64_t{1} << 24;
  constexpr int64_t kDrawnVisits = 256;  // where lines are drawn, visits search for earlier ones
  const LineTransfer &first = transfers_.front();
  const int64_t lines = dSize() + xSize();
  const int64_t together = first.settings().together;
  const int64_t period = std::max<int64_t>(1, first.settings().schedule.period());
  const int64_t visits = std::max<int64_t>(
      1, std::min(kFloats / lines, first.settings().random ? kDrawnVisits : kFloats) / together);
  return std::max<int64_t>(1, std::min(kFloats / lines, visits * period));
}

// With auto_scale, the learning rates of samples; else null.
const float *TransferDevice::rates(const Context &context, MatrixView<const float> x,
                                   MatrixView<const float> d, float lr) {
  if (!params_.auto_scale) return nullptr;
  findRates(context, x, d, lr, {sampleMaxima_.data(), maxima_.data(), rates_.data()});
  return rates_.data();
}

void TransferDevice::findRates(const Context &context, MatrixView<const float> x,
                               MatrixView<const float> d, float lr,
                               const RatesOfSamples &to) const {
  const int64_t samples = x.rows;
  const int64_t batch = lastBatch_ > 0 ? lastBatch_ : samples;
  const Crossbar &fast = *chain_.front();
  rowAbsMax(context, x, to.maxima);
  rowAbsMax(context, d, to.maxima + samples);
  const float slots = static_cast<float>(fast.updater().parameters().desired_bl);
  forEach(context, 1,
          AutoRates{samples, to.maxima, to.maxima + samples,
                    (1.0f - params_.auto_momentum) / static_cast<float>(batch),
                    fastRate(lr) * slots * fast.cells().granularity(), to.running, to.rates,
                    context.nonfiniteFlag});
}

void TransferDevice::requireRoom(int64_t samples) const {
  for (const LineTransfer &each : transfers_) {
    const int64_t visits = each.dueWithin(samples).visits.count + each.settings().together;
    pulsora::requireRoom(each.reads(), static_cast<uint64_t>(visits), kMostCounted,
                         "reads of transfers");
  }
}

void TransferDevice::prepareUpdate(const Context &context, int64_t samples, int64_t longest,
                                   float lr) {
  requireRoom(samples);
  reserveUpdate(context, longest, lr);
}

void TransferDevice::reserveUpdate(const Context &context, int64_t samples, float) {
  const int64_t piece = std::min(samples, longestPiece());
  Crossbar &fast = *chain_.front();
  fast.updater().reserve(context, fast.cells(), piece, params_.auto_scale ? 1.0f : fastRate(1.0f));
  for (size_t k = 0; k < transfers_.size(); ++k) {
    LineTransfer &transfer = transfers_[k];
    const int64_t together = transfer.settings().together;
    const int64_t events = k == 0 ? transfer.settings().schedule.mostWithin(piece) : 1;
    transfer.reserve(context, together * std::max<int64_t>(1, events),
                     chain_[k + 1]->cells().granularity());
    chain_[k]->cells().reserveTaps(context, together * std::max<int64_t>(1, events),
                                   params_.transfer_columns);
  }
  if (transfers_.front().rule().chops()) {
    xChopped_.reserve(context, piece * xSize());
    dChopped_.reserve(context, piece * dSize());
  }
  if (params_.auto_scale) {
    sampleMaxima_.reserve(context, 2 * piece);
    rates_.reserve(context, piece);
  }
}

bool TransferDevice::updateMayBeCut(const Context &context) const {
  // The weight of a sample in the running maxima of auto_scale follows the size of a mini-batch.
  return AnalogDevice::updateMayBeCut(context) && !(params_.auto_scale && lastBatch_ == 0);
}

void TransferDevice::update(const Context &context, MatrixView<const float> x,
                            MatrixView<const float> d, float lr, const Counters &c) {
  requireRoom(x.rows);
  reserveUpdate(context, x.rows, lr);
  const int64_t longest = longestPiece();
  for (int64_t start = 0; start < x.rows; start += longest) {
    const int64_t count = std::min(longest, x.rows - start);
    updatePiece(context, x.block(start, 0, count, x.cols), d.block(start, 0, count, d.cols), lr,
                c.updateSamples + static_cast<uint64_t>(start));
  }
  batchSamples_ += x.rows;
}

void TransferDevice::updatePiece(const Context &context, MatrixView<const float> x,
                                 MatrixView<const float> d, float lr, uint64_t firstSample) {
  constexpr auto kSamples = TransferSchedule::Unit::Samples;
  LineTransfer &first = transfers_.front();
  Crossbar &fast = *chain_.front();
  DueVisits due = first.dueWithin(x.rows);
  due.visits.fault = context.nonfiniteFlag;
  const float *rates = this->rates(context, x, d, lr);
  float fastLr = std::copysign(rates ? 1.0f : fastRate(lr), lr);
  if (lr == 0.0f) fastLr = 0.0f;
  if (first.rule().chops()) {
    first.chop(context, x, due, true, rates, xChopped_.data());
    first.chop(context, d, due, false, rates, dChopped_.data());
    x = rowMajor<const float>(xChopped_.data(), x.rows, x.cols);
    d = rowMajor<const float>(dChopped_.data(), d.rows, d.cols);
  }
  fast.updater().update(context, fast.cells(), x, d, fastLr, firstSample, first.taps(due),
                        first.seen());
  first.passed(kSamples, x.rows);
  const LinePulses pulses = first.run(context, due, transferRate(0, lr), chain_[1]->cells(),
                                      params_.correct_gradient_magnitudes ? rates : nullptr);
  send(context, due, pulses, lr, x.rows);
  if (first.rule().chops()) weight_.signsChanged();
}

// Writes the pulses of the first transfer, whose visits are due within these samples, and makes the
// transfers of later arrays between them, each after the writes that come before it.
void TransferDevice::send(const Context &context, const DueVisits &due, const LinePulses &pulses,
                          float lr, int64_t samples) {
  const int64_t others = transfers_.front().rule().others;
  int64_t done = 0;
  const auto writeTo = [&](int64_t end) {
    if (end <= done) return;
    LinePulses part = pulses;
    part.visits = pulses.visits.part(done, end);
    part.values += done * others;
    part.firstSample += static_cast<uint64_t>(done);
    chain_[1]->cells().applyToLines(context, part);
    done = end;
  };
  for (int64_t sample = 0; sample < samples && transfers_.size() > 1;) {
    int64_t next = samples;  // the first sample with a transfer of a later array
    for (size_t k = 1; k < transfers_.size(); ++k) {
      const DueVisits later = transfers_[k].dueWithin(samples - sample);
      if (later.visits.count > 0) next = std::min(next, sample + later.firstTap);
    }
    const bool ends = next == samples;
    if (!ends) writeTo(due.before(next + 1));
    const int64_t passed = ends ? samples - sample : next + 1 - sample;
    for (size_t k = 1; k < transfers_.size(); ++k) {
      const bool isDue = transfers_[k].dueWithin(passed).visits.count > 0;
      transfers_[k].passed(TransferSchedule::Unit::Samples, passed);
      if (isDue) transferNow(context, k, lr);
    }
    sample += passed;
  }
  writeTo(pulses.visits.count);
}

// Reserves the storage of one transfer from array k.
void TransferDevice::reserveEvent(const Context &context, size_t k) {
  const int64_t together = transfers_[k].settings().together;
  transfers_[k].reserve(context, together, chain_[k + 1]->cells().granularity());
  if (params_.with_reset_prob > 0.0f)
    chain_[k]->cells().reserveTaps(context, together, params_.transfer_columns);
}

// A transfer from array k, as it is now.
void TransferDevice::transferNow(const Context &context, size_t k, float lr) {
  LineTransfer &transfer = transfers_[k];
  PulsedDevice &from = chain_[k]->cells();
  PulsedDevice &to = chain_[k + 1]->cells();
  DueVisits due = transfer.oneEvent();
  due.visits.fault = context.nonfiniteFlag;
  reserveEvent(context, k);
  from.readLines(context, due.visits, params_.transfer_columns, transfer.seen());
  from.resetLines(context, due.visits, params_.transfer_columns,
                  transfer.settings().resetProbability, ownWrite(due.visits.first));
  const float *rates = params_.auto_scale && params_.correct_gradient_magnitudes
                           ? maxima_.data() + AutoRates::kLatest
                           : nullptr;
  to.applyToLines(context, transfer.run(context, due, transferRate(k, lr), to, rates));
  if (transfer.rule().chops()) weight_.signsChanged();
}

void TransferDevice::postUpdate(const Context &context, float lr, const Counters &c) {
  const std::vector<NamedArray> all = arrays();  // takes memory, so before anything changes
  requireRoom(0);
  for (size_t k = 0; k < transfers_.size(); ++k) {
    if (transfers_[k].dueAtEnd()) reserveEvent(context, k);
  }
  for (size_t k = 0; k < transfers_.size(); ++k) {
    if (transfers_[k].dueAtEnd()) transferNow(context, k, lr);
    transfers_[k].passed(TransferSchedule::Unit::MiniBatches, 1);
  }
  relax(context, all, c.miniBatches);
  if (batchSamples_ > 0) lastBatch_ = batchSamples_;
  batchSamples_ = 0;
}

}  // namespace pulsora
