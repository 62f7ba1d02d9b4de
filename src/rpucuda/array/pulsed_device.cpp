#include "array/pulsed_device.h"

#include <algorithm>
#include <cmath>

#include "array/batched_updates.h"
#include "array/cell_kernels.h"
#include "array/events.h"
#include "array/visible_weights.h"
#include "core/backend.h"
#include "core/isa_dispatch.h"
#include "linalg/math_util.h"
#include "numerics/abs_max.h"
#include "numerics/cuda_numerics.h"

namespace pulsora {
namespace {

// Tensors of a state that describe cells.
constexpr const char *kCells = "cells";
constexpr const char *kReference = "reference";
constexpr const char *kDecayRates = "decay_rates";
constexpr const char *kDiffusions = "diffusions";
constexpr const char *kResets = "resets";

// A plane of spreads, or none if the cells agree.
Buffer<uint16_t> spreadPlane(const Context &context, bool used, const SpreadSampler &sampler,
                             int64_t size) {
  if (!used || sampler.dtod == 0.0f) return {};
  Buffer<uint16_t> plane(context, size);
  SpreadSampler filled = sampler;
  filled.plane = plane.data();
  forEach(context, size, filled);
  return plane;
}

}  // namespace

PulsedDevice::PulsedDevice(const Context &context, const DeviceParams &params, int64_t rows,
                           int64_t cols, RandomKey key, uint32_t slot)
    : params_(params), rows_(rows), cols_(cols), key_(key) {
  PULSORA_CHECK(ConfigError, rows >= 1 && cols >= 1, "an array of size [", rows, ", ", cols,
                "] was asked for; both sizes must be >= 1");
  PULSORA_CHECK(ConfigError, rows <= (int64_t{1} << 32) / cols, "an array of size [", rows, ", ",
                cols,
                "] was asked for; an array holds at most 2^32 cells: split it over several tiles");
  const PulsedParams &p = params_.common();
  const RandomKey sampling =
      p.construction_seed ? makeKey(static_cast<uint64_t>(p.construction_seed), 0, slot) : key_;
  weights_ = Buffer<float>::zeros(context, size());
  if (p.write_noise_std > 0.0f) visible_ = Buffer<float>::zeros(context, size());
  cells_ =
      Buffer<uint16_t>(context, size() * static_cast<int64_t>(params_.model().cellMembers.size()));
  counts_ = Buffer<uint64_t>::zeros(context, 2);
  if (!context.onCpu() && p.noise_merge == NoiseMerge::Batch)
    deferred_ = Buffer<uint32_t>(context, size() + 1);
  SampledCells sampled = sampledCells();
  sampled.key = sampling;
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.construct(sampled, cells_.data(), begin, end, stream);
  });
  decayRates_ =
      spreadPlane(context, p.lifetime > 0.0f,
                  {sampling, Purpose::Decay, p.lifetime_dtod, true, false, nullptr}, size());
  diffusions_ =
      spreadPlane(context, p.diffusion > 0.0f,
                  {sampling, Purpose::Diffusion, p.diffusion_dtod, false, false, nullptr}, size());
  resets_ = spreadPlane(context, true,
                        {sampling, Purpose::Reset, p.reset_dtod, false, true, nullptr}, size());
  write(context, {});
  if (p.apply_write_noise_on_set) afterWrite(context, kSetEvents);
}

SampledCells PulsedDevice::sampledCells() const {
  return {rows_, cols_, cells_.data(), &params_.common(), key_};
}

CellArray PulsedDevice::array() { return {sampledCells(), weights_.data(), deferred_.data()}; }

// Writes `from`, or the current weights if `from` is empty, within the bounds.
void PulsedDevice::write(const Context &context, MatrixView<const float> from) {
  boundsDue_ = false;
  ++changes_;
  const CellArray a = array();
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.write(a, from, begin, end, stream);
  });
}

// Brings stored weights within the bounds of their cells.
void PulsedDevice::confine(const Context &context, float *stored) const {
  CellArray a{};
  static_cast<SampledCells &>(a) = sampledCells();
  a.weights = stored;
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.write(a, {}, begin, end, stream);
  });
}

// Renews the visible weights, with write noise of deviation `noise`.
void PulsedDevice::look(const Context &context, float noise, uint64_t event) {
  if (visible_.empty()) return;
  const VisibleWeight cells{frame(), weights_.data(), noise, key_, event, visible_.data()};
  if (!context.onCpu()) {
    forEach(context, size(), cells);
    return;
  }
  const auto kernel = withIsa(context.cpu.isa, [](auto isa) { return &makeVisible<isa>; });
  parallelRange(context, size(), kStepsPerThread / kCellSteps,
                [&](int64_t begin, int64_t end) { kernel(cells, begin, end); });
}

float PulsedDevice::writeNoise() const {
  const PulsedParams &p = params_.common();
  return p.write_noise_std * p.dw_min;
}

void PulsedDevice::afterWrite(const Context &context, uint64_t event) {
  ++changes_;
  look(context, writeNoise(), event);
}

void PulsedDevice::addReferences(const Context &context, int64_t pairs, RandomKey key) {
  reference_ = Buffer<float>::zeros(context, size());
  balance(context, pairs, key, reference_.data());
  if (visible_.empty()) visible_ = Buffer<float>::zeros(context, size());
  setWeights(context, rowMajor<const float>(weights_.data(), rows_, cols_), 0);
}

void PulsedDevice::addColumnSigns(const Context &context) {
  const std::vector<float> ones(static_cast<size_t>(cols_), 1.0f);
  ++changes_;
  signs_ = Buffer<float>(context, cols_);
  detail::copyFromHost(context, signs_.data(), ones.data(), signs_.bytes());
  if (!visible_.empty()) return;
  visible_ = Buffer<float>::zeros(context, size());
  look(context, 0.0f, 0);
}

void PulsedDevice::turnColumns(const Context &context, const float *factors) {
  ++changes_;
  forEach(context, size(), ColumnScaler{factors, cols_, visible_.data()});
  if (isAged()) forEach(context, size(), ColumnScaler{factors, cols_, ageing_->seen.data()});
  forEach(context, cols_, ColumnScaler{factors, cols_, signs_.data()});
}

MatrixView<const float> PulsedDevice::weights() const {
  if (isAged()) return rowMajor<const float>(ageing_->seen.data(), rows_, cols_);
  return rowMajor<const float>(visible_.empty() ? weights_.data() : visible_.data(), rows_, cols_);
}

void PulsedDevice::setWeights(const Context &context, MatrixView<const float> weights,
                              uint64_t event) {
  PULSORA_CHECK(InputError, weights.rows == rows_ && weights.cols == cols_, "weights have shape [",
                weights.rows, ", ", weights.cols, "]; this array is [", rows_, ", ", cols_, "]");
  if (ageing_) ageing_->age = {};
  if (reference_.empty() && signs_.empty()) {
    write(context, weights);
  } else {
    forEach(context, size(), StoredWeight{frame(), weights, weights_.data()});
    write(context, {});
  }
  if (params_.common().apply_write_noise_on_set) {
    afterWrite(context, kSetEvents + event);
  } else {
    look(context, 0.0f, 0);
  }
}

// Whether a GPU may pulse this array in one launch with others.
bool PulsedDevice::joinsUpdates(const Context &context) const {
  return kernelsOf(params_.model(), context).updateTogether &&
         params_.common().noise_merge != NoiseMerge::Batch;
}

void PulsedDevice::applyPulses(const Context &context, const PulseWords &words) {
  if (words.endSample == words.firstSample) return;
  settle(context);
  pulse(context, words);
  afterWrite(context, words.endSample);
}

void PulsedDevice::pulse(const Context &context, const PulseWords &words) {
  const CellArray a = array();
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  if (words.samples > 0 && joinsUpdates(context)) {
    const PulsedUpdate alone{a, words, counts_.data()};
    updateBatched(context, kernels, &alone, 1);
  } else if (words.samples > 0) {
    overCells(context, size(), 2 + words.samples, [&](int64_t begin, int64_t end, void *stream) {
      kernels.update(a, words, counts_.data(), begin, end, stream);
    });
  }
}

void PulsedDevice::applyPulsesToEach(const Context &context, const ArrayPulses *list, int count) {
  for (int i = 0; i < count;) {
    const DeviceModel *model = &list[i].array->params_.model();
    PulsedUpdate updates[kMostOfObject];
    int together = 0;
    for (; together < kMostOfObject && i + together < count; ++together) {
      const auto &[array, words] = list[i + together];
      if (&array->params_.model() != model || words->samples == 0 || !array->joinsUpdates(context))
        break;
      array->settle(context);
      updates[together] = {array->array(), *words, array->counts_.data()};
    }
    if (together < 2) {
      list[i].array->applyPulses(context, *list[i].words);
      ++i;
      continue;
    }
    updateBatched(context, kernelsOf(*model, context), updates, together);
    for (const int end = i + together; i < end; ++i)
      list[i].array->afterWrite(context, list[i].words->endSample);
  }
}

void PulsedDevice::reserveOuterProduct(const Context &context, int64_t samples) {
  scaled_.reserve(context, samples * rows_);
}

void PulsedDevice::applyOuterProduct(const Context &context, MatrixView<const float> x,
                                     MatrixView<const float> d, float lr, Bounds bounds,
                                     uint64_t event) {
  if (x.rows == 0) return;
  settle(context);
  reserveOuterProduct(context, d.rows);
  forEach(context, d.size(), ScaledCopier{d, -lr, scaled_.data()});
  const MatrixView<const float> scaled = rowMajor<const float>(scaled_.data(), d.rows, d.cols);
  accumulate(context, scaled.transposed(), x, rowMajor(weights_.data(), rows_, cols_));
  if (bounds == Bounds::Now) write(context, {});
  boundsDue_ = bounds == Bounds::Later;
  boundsEvent_ = event;
  afterWrite(context, event);
}

void PulsedDevice::meetBounds(const Context &context) {
  if (!boundsDue_) return;
  settle(context);
  write(context, {});
  afterWrite(context, boundsEvent_);
}

void PulsedDevice::addWeights(const Context &context, MatrixView<const float> delta,
                              uint64_t event) {
  settle(context);
  forEach(context, size(), WeightAdder{delta, weights_.data()});
  write(context, {});
  afterWrite(context, kSetEvents + event);
}

void PulsedDevice::relax(const Context &context, uint64_t event) {
  meetBounds(context);
  const PulsedParams &p = params_.common();
  if (p.lifetime == 0.0f && p.diffusion == 0.0f) return;
  settle(context);
  const CellArray a = array();
  const Relaxation relaxation{decayRates_.data(), diffusions_.data(), resets_.data(), event};
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.relax(a, relaxation, begin, end, stream);
  });
  afterWrite(context, kRelaxEvents + event);
}

void PulsedDevice::resetColumns(const Context &context, int64_t firstCol, int64_t count,
                                float probability, uint64_t event) {
  PULSORA_CHECK(ConfigError, firstCol >= 0 && firstCol < cols_ && count >= 0 && count <= cols_,
                count, " columns from column ", firstCol, " were to be reset; the array has ",
                cols_, " columns, counted from 0");
  PULSORA_CHECK(ConfigError, probability >= 0.0f && probability <= 1.0f, "reset probability is ",
                probability, "; it must be >= 0 and <= 1");
  reset(context, {resets_.data(), firstCol, count, probability, event});
}

void PulsedDevice::resetCells(const Context &context, const float *chosen, uint64_t event) {
  reset(context, {resets_.data(), 0, cols_, 1.0f, event, chosen});
}

void PulsedDevice::reset(const Context &context, const ResetEvent &event) {
  settle(context);
  const CellArray a = array();
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.reset(a, event, begin, end, stream);
  });
  afterWrite(context, kResetEvents + event.event);
}

uint64_t PulsedDevice::pulseCount(const Context &context) const {
  uint64_t count = 0;
  detail::copyToHost(context, &count, counts_.data(), sizeof count);
  return count;
}

uint64_t PulsedDevice::slotCount(const Context &context) const {
  uint64_t count = 0;
  detail::copyToHost(context, &count, counts_.data() + 1, sizeof count);
  return count;
}

size_t PulsedDevice::memoryBytes() const {
  return weights_.bytes() + visible_.bytes() + reference_.bytes() + signs_.bytes() +
         cells_.bytes() + decayRates_.bytes() + diffusions_.bytes() + resets_.bytes() +
         deferred_.bytes() + (ageing_ ? ageing_->seen.bytes() : 0);
}

bool PulsedDevice::isOfCells(const std::string &tensor) {
  const std::string name = tensor.substr(tensor.rfind('/') + 1);
  for (const char *of : {kCells, kReference, kDecayRates, kDiffusions, kResets})
    if (name == of) return true;
  return false;
}

void PulsedDevice::saveTo(const Context &context, State &state, const std::string &prefix) const {
  const std::vector<int64_t> shape{rows_, cols_};
  const auto members = static_cast<int64_t>(params_.model().cellMembers.size());
  state.put(context, prefix + "weights", Tensor::Type::F32, shape, weights_);
  state.putFixed(context, prefix + kCells, Tensor::Type::F16, {members, rows_, cols_}, cells_);
  if (!visible_.empty())
    state.put(context, prefix + "visible_weights", Tensor::Type::F32, shape, visible_);
  if (!reference_.empty())
    state.put(context, prefix + kReference, Tensor::Type::F32, shape, reference_);
  if (!signs_.empty())
    state.put(context, prefix + "column_signs", Tensor::Type::F32, {cols_}, signs_);
  if (!decayRates_.empty())
    state.putFixed(context, prefix + kDecayRates, Tensor::Type::F16, shape, decayRates_);
  if (!diffusions_.empty())
    state.putFixed(context, prefix + kDiffusions, Tensor::Type::F16, shape, diffusions_);
  if (!resets_.empty())
    state.putFixed(context, prefix + kResets, Tensor::Type::F16, shape, resets_);
  uint64_t counts[2] = {};
  detail::copyToHost(context, counts, counts_.data(), sizeof counts);
  state.values[prefix + "pulses"] = Value(counts[0]);
  state.values[prefix + kSlots] = Value(counts[1]);
  saveAge(state, prefix);
  // Only within a mini-batch, so that states saved between mini-batches keep their set of values.
  if (boundsDue_) state.values[prefix + kBoundsDue] = Value(boundsEvent_);
}

void PulsedDevice::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  const std::vector<int64_t> shape{rows_, cols_};
  const auto members = static_cast<int64_t>(params_.model().cellMembers.size());
  const bool hasSlots = state.values.count(prefix + kSlots) != 0;
  const uint64_t counts[2] = {state.counter(prefix + "pulses"),
                              hasSlots ? state.counter(prefix + kSlots) : 0};
  const bool due = state.values.count(prefix + kBoundsDue) != 0;
  const uint64_t event = due ? state.counter(prefix + kBoundsDue) : 0;
  const Age age = readAge(state, prefix);
  ++changes_;
  state.take(context, prefix + "weights", Tensor::Type::F32, shape, weights_);
  state.takeFixed(context, prefix + kCells, Tensor::Type::F16, {members, rows_, cols_}, cells_);
  if (!visible_.empty())
    state.take(context, prefix + "visible_weights", Tensor::Type::F32, shape, visible_);
  if (!reference_.empty())
    state.take(context, prefix + kReference, Tensor::Type::F32, shape, reference_);
  if (!signs_.empty())
    state.take(context, prefix + "column_signs", Tensor::Type::F32, {cols_}, signs_);
  if (!decayRates_.empty())
    state.takeFixed(context, prefix + kDecayRates, Tensor::Type::F16, shape, decayRates_);
  if (!diffusions_.empty())
    state.takeFixed(context, prefix + kDiffusions, Tensor::Type::F16, shape, diffusions_);
  if (!resets_.empty())
    state.takeFixed(context, prefix + kResets, Tensor::Type::F16, shape, resets_);
  detail::copyFromHost(context, counts_.data(), counts, sizeof counts);
  boundsDue_ = due;
  boundsEvent_ = event;
  drift(context, age);
}

}  // namespace pulsora
