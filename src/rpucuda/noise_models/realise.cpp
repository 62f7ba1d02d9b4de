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

template <class... Models>
void realiseAny(TypeList<Models...>, const Context &context, const NoiseModelParams &model,
                double time, const Realisation &realisation) {
  const auto tryModel = [&](auto tag) {
    using Model = typename decltype(tag)::Type;
    if (model.model().name == Model::kName) realiseAs<Model>(context, model, time, realisation);
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
  realiseAny(AllNoiseModels{}, context, model, time, realisation);
}

}  // namespace pulsora
