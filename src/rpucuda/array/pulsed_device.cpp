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

// Tensor of a state that describes cells, besides those of CellPlanes.
constexpr const char *kReference = "reference";
constexpr const char *kCounts = "counts";

bool computesCells(const PulsedParams &params, Touched touched) {
  return params.cells == CellStorage::Computed ||
         (params.cells == CellStorage::Auto && touched == Touched::Seldom);
}

int64_t requireSize(int64_t rows, int64_t cols) {
  PULSORA_CHECK(ConfigError, rows >= 1 && cols >= 1, "an array of size [", rows, ", ", cols,
                "] was asked for; both sizes must be >= 1");
  PULSORA_CHECK(ConfigError, rows <= (int64_t{1} << 32) / cols, "an array of size [", rows, ", ",
                cols,
                "] was asked for; an array holds at most 2^32 cells: split it over several tiles");
  return rows;
}

}  // namespace

RandomKey PulsedDevice::cellKey(const PulsedParams &params, RandomKey key, uint32_t slot) {
  if (params.construction_seed == 0) return key;
  return makeKey(static_cast<uint64_t>(params.construction_seed), 0, slot);
}

PulsedDevice::PulsedDevice(const Context &context, const DeviceParams &params, int64_t rows,
                           int64_t cols, RandomKey key, uint32_t slot)
    : PulsedDevice(context, params, rows, cols, key, cellKey(params.common(), key, slot)) {}

PulsedDevice::PulsedDevice(const Context &context, const DeviceParams &params, int64_t rows,
                           int64_t cols, RandomKey key, RandomKey cellKey, Touched touched)
    : params_(params),
      rows_(requireSize(rows, cols)),
      cols_(cols),
      key_(key),
      cells_(context, params, rows, cols, cellKey, computesCells(params.common(), touched)) {
  const PulsedParams &p = params_.common();
  weights_ = Buffer<float>::zeros(context, size());
  if (p.write_noise_std > 0.0f) visible_ = Buffer<float>::zeros(context, size());
  counts_ = Buffer<uint64_t>::zeros(context, 2);
  if (!context.onCpu() && p.noise_merge == NoiseMerge::Batch)
    deferred_ = Buffer<uint32_t>(context, size() + 1);
  write(context, {});
  if (p.apply_write_noise_on_set) afterWrite(context, kSetEvents);
}

SampledCells PulsedDevice::sampledCells(const CellLoan &loan) const {
  return {rows_, cols_, loan.cells(), &params_.common(), key_};
}

CellArray PulsedDevice::array(const CellLoan &loan) {
  return {sampledCells(loan), weights_.data(), deferred_.data()};
}

void PulsedDevice::reserveRelax(const Context &context) const {
  const PulsedParams &p = params_.common();
  if (boundsDue_ || p.lifetime > 0.0f || p.diffusion > 0.0f) reserveCells(context);
}

// Writes `from`, or the current weights if `from` is empty, within the bounds.
void PulsedDevice::write(const Context &context, MatrixView<const float> from) {
  boundsDue_ = false;
  ++changes_;
  const CellLoan loan(context, cells_);
  const CellArray a = array(loan);
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.write(a, from, begin, end, stream);
  });
}

// Brings stored weights within the bounds of their cells.
void PulsedDevice::confine(const Context &context, float *stored) const {
  const CellLoan loan(context, cells_);
  CellArray a{};
  static_cast<SampledCells &>(a) = sampledCells(loan);
  a.weights = stored;
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.write(a, {}, begin, end, stream);
  });
}

// Renews the visible weights, with write noise of deviation `noise`.
void PulsedDevice::look(const Context &context, float noise, uint64_t event) {
  if (visible_.empty()) return;
  const VisibleWeight cells{frame(),         weights_.data(),      noise, key_, event,
                            visible_.data(), context.nonfiniteFlag};
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
  const CellLoan loan(context, cells_);
  const CellArray a = array(loan);
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
    std::optional<CellLoan> loans[kMostOfObject];
    int together = 0;
    for (; together < kMostOfObject && i + together < count; ++together) {
      const auto &[array, words] = list[i + together];
      if (&array->params_.model() != model || words->samples == 0 || !array->joinsUpdates(context))
        break;
      array->settle(context);
      const CellLoan &loan = loans[together].emplace(context, array->cells_);
      updates[together] = {array->array(loan), *words, array->counts_.data()};
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
  const CellLoan loan(context, cells_);
  const CellArray a = array(loan);
  const Relaxation relaxation{loan.decayRates(), loan.diffusions(), loan.resets(), event,
                              context.nonfiniteFlag};
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
  reset(context, {nullptr, firstCol, count, probability, event});
}

void PulsedDevice::resetCells(const Context &context, const float *chosen, uint64_t event) {
  reset(context, {nullptr, 0, cols_, 1.0f, event, chosen});
}

void PulsedDevice::reset(const Context &context, ResetEvent event) {
  settle(context);
  const CellLoan loan(context, cells_);
  event.resets = loan.resets();
  const CellArray a = array(loan);
  const PulsedKernels &kernels = kernelsOf(params_.model(), context);
  overCells(context, size(), kCellSteps, [&](int64_t begin, int64_t end, void *stream) {
    kernels.reset(a, event, begin, end, stream);
  });
  afterWrite(context, kResetEvents + event.event);
}

uint64_t PulsedDevice::pulseCount(const Context &context) const {
  return detail::valueOnHost(context, counts_.data());
}

uint64_t PulsedDevice::slotCount(const Context &context) const {
  return detail::valueOnHost(context, counts_.data() + 1);
}

size_t PulsedDevice::memoryBytes() const {
  return weights_.heldBytes() + visible_.heldBytes() + reference_.heldBytes() + signs_.heldBytes() +
         cells_.memoryBytes() + deferred_.bytes() + (ageing_ ? ageing_->seen.bytes() : 0);
}

bool PulsedDevice::isOfCells(const std::string &name) {
  return CellPlanes::isOf(name) || name.substr(name.rfind('/') + 1) == kReference;
}

void PulsedDevice::saveTo(const Context &context, State &state, const std::string &prefix) const {
  const std::vector<int64_t> shape{rows_, cols_};
  state.put(context, prefix + "weights", Tensor::Type::F32, shape, weights_);
  cells_.saveTo(context, state, prefix);
  if (!visible_.empty())
    state.put(context, prefix + "visible_weights", Tensor::Type::F32, shape, visible_);
  if (!reference_.empty())
    state.put(context, prefix + kReference, Tensor::Type::F32, shape, reference_);
  if (!signs_.empty())
    state.put(context, prefix + "column_signs", Tensor::Type::F32, {cols_}, signs_);
  if (!state.packs(context, prefix + kCounts, counts_)) {
    uint64_t counts[2] = {};
    detail::copyToHost(context, counts, counts_.data(), sizeof counts);
    state.values[prefix + "pulses"] = Value(counts[0]);
    state.values[prefix + kSlots] = Value(counts[1]);
  }
  saveAge(state, prefix);
  // Only within a mini-batch, so that states saved between mini-batches keep their set of values.
  if (boundsDue_) state.values[prefix + kBoundsDue] = Value(boundsEvent_);
}

void PulsedDevice::loadFrom(const Context &context, const State &state, const std::string &prefix) {
  const std::vector<int64_t> shape{rows_, cols_};
  uint64_t counts[2] = {};
  if (!state.packed) {
    counts[0] = state.counter(prefix + "pulses");
    if (state.values.count(prefix + kSlots) != 0) counts[1] = state.counter(prefix + kSlots);
  }
  const bool due = state.values.count(prefix + kBoundsDue) != 0;
  const uint64_t event = due ? state.counter(prefix + kBoundsDue) : 0;
  const Age age = readAge(state, prefix);
  ++changes_;
  cells_.loadFrom(context, state, prefix);
  state.take(context, prefix + "weights", Tensor::Type::F32, shape, weights_);
  if (!visible_.empty())
    state.take(context, prefix + "visible_weights", Tensor::Type::F32, shape, visible_);
  if (!reference_.empty())
    state.take(context, prefix + kReference, Tensor::Type::F32, shape, reference_);
  if (!signs_.empty())
    state.take(context, prefix + "column_signs", Tensor::Type::F32, {cols_}, signs_);
  if (!state.unpacks(context, prefix + kCounts, counts_))
    detail::copyFromHost(context, counts_.data(), counts, sizeof counts);
  boundsDue_ = due;
  boundsEvent_ = event;
  drift(context, age);
}

}  // namespace pulsora
