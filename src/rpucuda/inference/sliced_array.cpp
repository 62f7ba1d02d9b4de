#include "core/backend.h"
#include "inference/functors.h"
#include "inference/inference_device.h"
#include "linalg/math_util.h"

// The weights of an InferenceDevice in parts: slices, each an array of pairs, or the devices of a
// table. Part k has the keys of slot k.

namespace pulsora {

void InferenceDevice::makeSlices(const CompoundSite &site) {
  if (!isApart()) return;
  otherPasses_.reserve(static_cast<size_t>(parts_.count));
  otherReadouts_.reserve(static_cast<size_t>(parts_.count));
  for (int k = 1; k < parts_.count; ++k) {
    const auto slot = static_cast<uint32_t>(k);
    const ReadKeys keys = keys_.ofRead(slot, Role::Read);
    otherPasses_.emplace_back(site.context, site.periphery.forward, site.periphery.backward, dSize_,
                              xSize_, keys);
    otherReadouts_.emplace_back(site.context, site.periphery.forward, Pass::Forward, xSize_, dSize_,
                                ReadKeys(keys_.of(slot, Role::Readout), keys.spreads));
  }
}

std::vector<AnalogRead *> InferenceDevice::reads() {
  std::vector<AnalogRead *> all;
  all.reserve(2 * static_cast<size_t>(arraysOfRead()));
  for (int k = 0; k < arraysOfRead(); ++k)
    for (AnalogRead *read : {&passOf(k).forward(), &passOf(k).backward()}) all.push_back(read);
  return all;
}

// Noise has no largest value. Weights beyond eight times the range of cells, which no memory gets
// to, saturate in integers; a bound of 8 itself would take a bit more.
void InferenceDevice::boundReads(const Context &) {
  constexpr double kRanges = 7.999;
  for (AnalogRead *read : reads()) read->setWeightBound(kRanges);
}

void InferenceDevice::setVariances(float *variances) {
  for (int k = 0; k < arraysOfRead(); ++k)
    passOf(k).forward().setCellVariance(variances ? variances + k * cells() : nullptr);
}

// The realisation of part k of the weights at a point.
void InferenceDevice::realiseSlice(const Context &context, const ProgrammedPoint &point, int k,
                                   Realisation &r) {
  plane_.reserve(context, cells());
  if (params_.cell == CellKind::Table) {
    forEach(context, cells(),
            TableTaker{params_.table_w, params_.table_g, k, wanted_.data(), plane_.data()});
  } else {
    forEach(context, cells(), DigitTaker{parts_, k, wanted_.data(), plane_.data()});
  }
  r.wanted = plane_.data();
  if (given()) {
    const int64_t devices = cell_.devices;
    pairs_.reserve(context, cells() * devices);
    copy(context,
         rowMajor<const float>(given()->data(), cells(), devicesOfCell())
             .block(0, k * devices, cells(), devices),
         rowMajor(pairs_.data(), cells(), devices));
    r.measured = pairs_.data();
  }
  realise(context, params_.noise_model, point.time, r);
}

void InferenceDevice::realiseSlices(const Context &context, const ProgrammedPoint &point,
                                    const RealisedArray &to) {
  if (!to.slices) slice_.reserve(context, cells());
  if (!to.slices && to.variance) sliceVariance_.reserve(context, cells());
  for (int k = 0; k < parts_.count; ++k) {
    const bool first = k == 0;
    const float over = k + 1 == parts_.count ? parts_.steps : 1.0f;
    const float factor = parts_.significance(k);
    Realisation r = realisation(point, k);
    r.weights = to.slices ? to.slices + k * cells() : slice_.data();
    if (to.variance) r.variance = to.slices ? to.variance + k * cells() : sliceVariance_.data();
    realiseSlice(context, point, k, r);
    forEach(context, cells(), DigitAdder{r.weights, factor, over, first, to.weights});
    if (to.slices || !to.variance) continue;
    forEach(context, cells(),
            DigitAdder{r.variance, factor * factor, over * over, first, to.variance});
  }
}

void InferenceDevice::sliceConductancesAt(const Context &context, const ProgrammedPoint &point,
                                          Conductances which, float *out) {
  const int64_t devices = cell_.devices;
  slice_.reserve(context, cells() * devices);
  for (int k = 0; k < parts_.count; ++k) {
    Realisation r = realisation(point, k);
    r.which = which;
    r.conductances = slice_.data();
    realiseSlice(context, point, k, r);
    copy(context, rowMajor<const float>(slice_.data(), cells(), devices),
         rowMajor(out, cells(), devicesOfCell()).block(0, k * devices, cells(), devices));
  }
}

// y = sum_k factor_k y_k, where y_k is the read of slice k through its converters.
void InferenceDevice::readSlices(const Context &context, Pass pass, const float *slices,
                                 MatrixView<const float> in, MatrixView<float> out,
                                 uint64_t firstSample) {
  const auto readOf = [&](int k) -> AnalogRead & {
    return pass == Pass::Forward ? passOf(k).forward() : passOf(k).backward();
  };
  const auto weightsOf = [&](int k) {
    const auto weights = rowMajor<const float>(slices + k * cells(), dSize_, xSize_);
    return pass == Pass::Forward ? weights : weights.transposed();
  };
  // Memory that runs out does so before the first slice is read.
  slice_.reserve(context, out.size());
  for (int k = 0; k < parts_.count; ++k) readOf(k).reserve(context, weightsOf(k), in.rows);
  const MatrixView<float> part = rowMajor(slice_.data(), out.rows, out.cols);
  for (int k = 0; k < parts_.count; ++k) {
    readOf(k).run(context, weightsOf(k), in, part, firstSample);
    forRows(context, out.rows, out.cols, ReadAdder{part, parts_.factor(k), k == 0, out});
  }
}

// The sums of the magnitudes of one-hot readings, each of which adds those of the slices.
void InferenceDevice::readOutSlices(const Context &context, const ProgrammedPoint &point,
                                    const RealisedArray &array, Buffer<double> &sums) {
  plane_.reserve(context, cells());
  const MatrixView<float> readings = rowMajor(plane_.data(), dSize_, xSize_);
  for (int k = 0; k < parts_.count; ++k) {
    AnalogRead &read = readoutOf(k);
    read.setNoiseKey(keyAt(keys_.ofRead(static_cast<uint32_t>(k), Role::Readout).noise, point));
    read.setCellVariance(array.variance ? array.variance + k * cells() : nullptr);
    const auto weights = rowMajor<const float>(array.slices + k * cells(), dSize_, xSize_);
    forRows(context, dSize_, xSize_,
            OneHotAdder{read.oneHot(weights, 0), parts_.factor(k), k == 0, readings});
  }
  sumRows(context, dSize_, xSize_, MagnitudeTerm{readings}, sums.data());
}

// Counts reads of all slices, each of which may have converters of its own.
void InferenceDevice::countReads(HardwareCounts &counts, Pass pass, uint64_t samples) const {
  ReadCounts sum;
  for (int k = 0; k < arraysOfRead(); ++k) {
    const ForwardBackwardPass &own = passOf(k);
    const ReadCounts one =
        (pass == Pass::Forward ? own.forward() : own.backward()).counts(counts.context(), samples);
    sum.samples = one.samples;
    sum.repeats += one.repeats;
    sum.arrayReads += one.arrayReads;
    sum.cellReads += one.cellReads;
    sum.dac += one.dac;
    sum.adc += one.adc;
    sum.arrays += one.arrays;
  }
  sum.cellReads *= static_cast<uint64_t>(devicesOfCell() / arraysOfRead());
  counts.addReads("devices", pass == Pass::Forward ? "forward" : "backward", sum);
}

}  // namespace pulsora
