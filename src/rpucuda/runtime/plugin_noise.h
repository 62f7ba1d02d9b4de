#pragma once

#include "cuda/core/grid.h"
#include "noise_models/noise_contract.h"
#include "noise_models/realise_lanes.h"
#include "runtime/plugin_params.h"
#include "runtime/plugin_table.h"

// A noise model as a plugin, compiled at run time together with the model's text. As in
// runtime/plugin.h, no standard library functions with code of their own.

namespace pulsora {
namespace plugin {

template <class Model, Isa isa>
struct NoisePlugin {
  using Params = typename Model::Params;
  static_assert(isNoiseModel<Model>());
  static_assert(sizeof(Realise<Model>) <= 4000,
                "Params and Time take more than a launch on a GPU can pass; use fewer lists");

  inline static const PluginLauncher *library = nullptr;

  static const Params &paramsOf(const NoiseParams &params) {
    return static_cast<const Params &>(params);
  }
  static Realise<Model> work(const Realisation &realisation, const NoiseParams &params,
                             double time) {
    return {realisation, paramsOf(params), Model::timeOf(time, paramsOf(params))};
  }
  static void onCpu(const Realisation &realisation, const NoiseParams &params, double time,
                    int64_t begin, int64_t end) {
    RealiseLanes<isa, Model>::run(work(realisation, params, time), begin, end);
  }
  static void onGpu(const Realisation &realisation, const NoiseParams &params, double time,
                    int64_t groups, void *stream) {
    constexpr int kThreads = 256;
    const Realise<Model> realise = work(realisation, params, time);
    const void *const arguments[] = {&realise, &groups};
    const uint64_t sizes[] = {sizeof realise, sizeof groups};
    library->launch(library->context, 0, gridFor(groups, kThreads), kThreads, arguments, sizes, 2,
                    stream);
  }
  static double lastTime(const NoiseParams &p) { return Model::lastTime(paramsOf(p)); }
  static double readDuration(const NoiseParams &p) { return Model::readDuration(paramsOf(p)); }
  static double ageOf(double time, const NoiseParams &p) { return Model::ageOf(time, paramsOf(p)); }
  static void setLauncher(const PluginLauncher *launcher) { library = launcher; }

  static const NoisePluginTable *table() {
    static const NoisePluginTable kTable = {headOf<Model, NoiseParams, isa>(),
                                            &lastTime,
                                            &readDuration,
                                            &ageOf,
                                            {&onCpu, &onGpu},
                                            &setLauncher};
    return &kTable;
  }
};

}  // namespace plugin
}  // namespace pulsora

/// Exports the noise model `Model` with its loops for `isa`.
#define PULSORA_NOISE_PLUGIN(Model, isa)                                              \
  extern "C" __attribute__((visibility("default"))) const pulsora::NoisePluginTable * \
  pulsoraNoisePlugin() {                                                              \
    return pulsora::plugin::NoisePlugin<pulsora::Model, pulsora::Isa::isa>::table();  \
  }
