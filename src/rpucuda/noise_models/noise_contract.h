#pragma once

#include <type_traits>

#include "noise_models/noise_model.h"

// Messages of the compiler about what a struct lacks to be a noise model, as those of
// devices/model_contract.h for device models.

namespace pulsora {
namespace detail {

#define PULSORA_DETECT(Has, ...)       \
  template <class Model, class = void> \
  struct Has : std::false_type {};     \
  template <class Model>               \
  struct Has<Model, std::void_t<decltype(__VA_ARGS__)>> : std::true_type {}

// Only declared: the checks below need types alone.
template <class Model>
const typename Model::Params &noiseParams();
template <class Model>
const typename Model::Time &noiseTime();

PULSORA_DETECT(NoiseHasName, Model::kName);
PULSORA_DETECT(NoiseHasDoc, Model::kDoc);
PULSORA_DETECT(NoiseHasParams, static_cast<const NoiseParams &>(noiseParams<Model>()));
PULSORA_DETECT(NoiseHasTime, typename Model::Time(Model::timeOf(1.0, noiseParams<Model>())));
PULSORA_DETECT(NoiseHasLastTime, double(Model::lastTime(noiseParams<Model>())));
PULSORA_DETECT(NoiseProgrammes, float(Model::programmed(0.0f, 0.0f, noiseParams<Model>())));
PULSORA_DETECT(NoiseDrifts, float(Model::drifted(0.0f, 0.0f, DriftDraws{}, noiseTime<Model>(),
                                                 noiseParams<Model>())));
PULSORA_DETECT(NoiseReads,
               float(Model::readSigma(0.0f, 0.0f, noiseTime<Model>(), noiseParams<Model>())));
PULSORA_DETECT(NoiseLimits, float(Model::limited(0.0f, noiseTime<Model>(), noiseParams<Model>())));
PULSORA_DETECT(NoiseHasAges, double(Model::readDuration(noiseParams<Model>())) +
                                 double(Model::ageOf(1.0, noiseParams<Model>())));

#undef PULSORA_DETECT

}  // namespace detail

/// Returns true; for a struct that is no noise model, fails to compile and says what is missing.
template <class Model>
constexpr bool isNoiseModel() {
  static_assert(detail::NoiseHasName<Model>::value,
                "a noise model needs: static constexpr const char *kName = \"its name\";");
  static_assert(detail::NoiseHasDoc<Model>::value,
                "a noise model needs: static constexpr const char *kDoc = \"what it is.\";");
  static_assert(detail::NoiseHasParams<Model>::value,
                "a noise model needs: struct Params : NoiseParams, with kName and fields()");
  static_assert(detail::NoiseHasTime<Model>::value,
                "a noise model needs: a struct Time, and static Time timeOf(double t, const Params "
                "&), what depends on the time alone");
  static_assert(detail::NoiseHasLastTime<Model>::value,
                "a noise model needs: static double lastTime(const Params &), the largest time in "
                "s that it knows");
  static_assert(detail::NoiseProgrammes<Model>::value,
                "a noise model needs: PULSORA_HD static float programmed(float target, float xi, "
                "const Params &), the conductance after programming");
  static_assert(detail::NoiseDrifts<Model>::value,
                "a noise model needs: PULSORA_HD static float drifted(float target, float "
                "programmed, const DriftDraws &, const Time &, const Params &)");
  static_assert(detail::NoiseReads<Model>::value,
                "a noise model needs: PULSORA_HD static float readSigma(float drifted, float "
                "programmed, const Time &, const Params &), the deviation of reads");
  static_assert(detail::NoiseLimits<Model>::value,
                "a noise model needs: PULSORA_HD static float limited(float g, const Time &, const "
                "Params &), the conductance within the device's limits");
  static_assert(detail::NoiseHasAges<Model>::value,
                "a noise model needs: static double readDuration(const Params &), and static "
                "double ageOf(double t, const Params &); 0 and t without 1/f noise");
  static_assert(std::is_base_of_v<NoiseParams, typename Model::Params>,
                "a model's Params extend NoiseParams");
  static_assert(std::is_trivially_copyable_v<typename Model::Params> &&
                    std::is_trivially_copyable_v<typename Model::Time>,
                "Params and Time are handed to kernels by value");
  return true;
}

}  // namespace pulsora
