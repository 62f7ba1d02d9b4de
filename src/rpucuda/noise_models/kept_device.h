#pragma once

#include <type_traits>

#include "noise_models/noise_model.h"

namespace pulsora {
namespace detail {

// Only declared, for its type.
template <class T>
const T &aConst();

/// void for a model that says what its devices keep over time, with all functions of it: one that
/// takes a law as its base and changes drifted() or readSigma() hides those of the law.
template <class Model>
using SaysWhatIsKept = std::void_t<
    decltype(Model::drifted(aConst<typename Model::Kept>(), 0.0f, aConst<typename Model::Time>())),
    decltype(Model::readSigma(aConst<typename Model::Kept>(), 0.0f, aConst<typename Model::Time>(),
                              aConst<typename Model::Params>()))>;

template <class Model, class = void>
struct HasDrifts : std::false_type {};
template <class Model>
struct HasDrifts<Model, std::void_t<decltype(Model::drifts(aConst<typename Model::Time>()))>>
    : std::true_type {};

}  // namespace detail

/// Whether devices have drifted at a time, as far as the model says.
template <class Model>
PULSORA_HD bool driftsAt(const typename Model::Time &time) {
  if constexpr (detail::HasDrifts<Model>::value) return Model::drifts(time);
  return true;
}

/// A programmed device, which is read at several times. This one is of a model that does not say
/// what a device keeps over time.
template <class Model, class = void>
struct KeptDevice {
  using Params = typename Model::Params;
  using Time = typename Model::Time;

  float target;
  float programmed;
  float xi;

  static PULSORA_HD KeptDevice of(float target, float programmed, float xi, const Params &) {
    return {target, programmed, xi};
  }
  /// The reading with the normals of a time: of its drift, and of its read noise.
  PULSORA_HD DeviceReading read(float anew, float noise, const Time &time, const Params &p,
                                float frozen) const {
    const float drifted = Model::drifted(target, programmed, {xi, anew}, time, p);
    return readingOfDrifted<Model>(drifted, programmed, noise, time, p, frozen);
  }
};

/// A programmed device of a model that says what it keeps.
template <class Model>
struct KeptDevice<Model, detail::SaysWhatIsKept<Model>> {
  using Params = typename Model::Params;
  using Time = typename Model::Time;

  float programmed;
  typename Model::Kept kept;

  static PULSORA_HD KeptDevice of(float target, float programmed, float xi, const Params &p) {
    return {programmed, Model::kept(target, programmed, xi, p)};
  }
  PULSORA_HD DeviceReading read(float, float noise, const Time &time, const Params &p,
                                float frozen) const {
    const float drifted = Model::drifted(kept, programmed, time);
    return readingWith<Model>(drifted, Model::readSigma(kept, drifted, time, p), noise, time, p,
                              frozen);
  }
};

}  // namespace pulsora
