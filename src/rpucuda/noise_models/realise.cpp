#include "noise_models/realise.h"

#include "core/backend.h"
#include "core/cuda_api.h"
#include "core/isa_dispatch.h"
#include "core/type_list.h"
#include "noise_model_list.h"

namespace pulsora {
namespace {

uint64_t bitsOf(RandomKey key) { return uint64_t{key.k1} << 32 | key.k0; }

/// A key for a number of 64 bits: different numbers give different keys.
RandomKey keyFor(RandomKey key, uint64_t number) {
  return makeKey(bitsOf(key), static_cast<uint32_t>(number >> 32), static_cast<uint32_t>(number));
}

constexpr int64_t kStepsOfGroup = 64;

/// Calls onCpu(begin, end) for parts of the groups.
template <class OnCpu>
void overGroups(const Context &context, int64_t groups, const OnCpu &onCpu) {
  parallelRange(context, groups, kStepsPerThread / kStepsOfGroup, onCpu);
}

template <class Model>
void realiseAs(const Context &context, const NoiseModelParams &model, double time,
               const Realisation &realisation) {
  const auto &params = model.as<typename Model::Params>();
  const Realise<Model> functor{realisation, params, Model::timeOf(time, params)};
  const int64_t groups = realisation.groups();
  if (context.onCpu()) {
    const auto kernel =
        withIsa(context.cpu.isa, [](auto isa) { return &realiseGroups<isa, Model>; });
    return overGroups(context, groups,
                      [&](int64_t begin, int64_t end) { kernel(functor, begin, end); });
  }
  forEach(context, groups, functor);
}

template <class Model>
void realiseReadingsAs(const Context &context, const NoiseModelParams &model,
                       const std::vector<TimedRealisation> &readings) {
  const auto &params = model.as<typename Model::Params>();
  RealiseReadings<Model> functor{{readings.front().realisation, params, {}}, 0, {}};
  for (size_t i = 0; i < readings.size(); ++i) {
    const auto &[time, r] = readings[i];
    functor.readings[functor.count++] =
        Realise<Model>{r, params, Model::timeOf(time, params)}.reading();
    if (functor.count < RealiseReadings<Model>::kMost && i + 1 < readings.size()) continue;
    forEach(context, functor.work.r.groups(), functor);
    functor.count = 0;
  }
}

/// Calls call(OneType<Model>) for the type of a model that was compiled with the library.
template <class... Models, class Call>
void withModel(TypeList<Models...>, const NoiseModelParams &model, const Call &call) {
  const auto tryModel = [&](auto tag) {
    if (model.model().name == decltype(tag)::Type::kName) call(tag);
  };
  (tryModel(OneType<Models>{}), ...);
}

void realiseFromSource(const Context &context, const NoiseModelParams &model, double time,
                       const Realisation &realisation) {
  const NoiseKernels &kernels = *model.model().kernels;
  const int64_t groups = realisation.groups();
  if (context.onCpu()) {
    return overGroups(context, groups, [&](int64_t begin, int64_t end) {
      kernels.onCpu(realisation, model.common(), time, begin, end);
    });
  }
  const CudaScope scope(context.device);
  kernels.onGpu(realisation, model.common(), time, groups, context.stream);
}

}  // namespace

RandomKey keyOfChip(RandomKey key, uint64_t chip) { return chip == 0 ? key : keyFor(key, chip); }

RandomKey keyAt(RandomKey key, const ProgrammedPoint &point) {
  const auto time = bitCast<uint64_t>(point.time + 0.0);  // not -0
  const RandomKey own = keyOfChip(key, point.chip);
  return keyFor(keyFor(keyFor(own, time), point.redraw), point.number);
}

RealisationKeys RealisationKeys::at(RandomKey device, RandomKey chip,
                                    const ProgrammedPoint &point) {
  const auto time = bitCast<uint64_t>(point.time + 0.0);
  const RandomKey own = keyOfChip(device, point.chip);
  return {own, keyOfChip(chip, point.chip), keyFor(keyFor(own, time), point.redraw)};
}

void realise(const Context &context, const NoiseModelParams &model, double time,
             const Realisation &realisation) {
  if (realisation.cells == 0) return;
  if (model.model().kernels) return realiseFromSource(context, model, time, realisation);
  withModel(AllNoiseModels{}, model, [&](auto tag) {
    realiseAs<typename decltype(tag)::Type>(context, model, time, realisation);
  });
}

void realiseReadings(const Context &context, const NoiseModelParams &model,
                     const std::vector<TimedRealisation> &readings) {
  if (readings.empty() || readings.front().realisation.cells == 0) return;
  const bool isSeveral = readings.size() > 1 && readings.front().realisation.isOfPairs();
  if (context.onCpu() || model.model().kernels || !isSeveral) {
    for (const auto &[time, realisation] : readings) realise(context, model, time, realisation);
    return;
  }
  withModel(AllNoiseModels{}, model, [&](auto tag) {
    realiseReadingsAs<typename decltype(tag)::Type>(context, model, readings);
  });
}

}  // namespace pulsora
