#pragma once

#include <cmath>

#include "numerics/math.h"
#include "parameters/field_types.h"
#include "parameters/limits.h"

// The contract of a noise model: how a device that was programmed to a conductance differs from it,
// how it drifts, and how its reads fluctuate.
//
//   struct MyMemory {
//     static constexpr const char *kName = "MyMemory";
//     static constexpr const char *kDoc = "...";
//     struct Params : NoiseParams { ... };                     // trivially copyable, with fields()
//     struct Time { ... };                                      // what depends on the time alone
//     static double lastTime(const Params &);                   // the largest time that is known
//     static Time timeOf(double t, const Params &);             // on the host, in double precision
//     static float programmed(float target, float xi, const Params &);
//     static float drifted(float target, float programmed, const DriftDraws &, const Time &,
//                          const Params &);
//     static float readSigma(float drifted, float programmed, const Time &, const Params &);
//     static float limited(float g, const Time &, const Params &);  // the device's own limits
//     static double readDuration(const Params &);               // of a read with 1/f noise; or 0
//     static double ageOf(double t, const Params &);            // of the device, for its 1/f noise
//   };
//
// Three members are optional; realisations are faster with them, and have the same bits:
//
//     static bool drifts(const Time &);        // false: drifted() is `programmed` for all devices
//     void Params::usual(const Visit &visit);  // visit(length, usual) for the lengths of loops,
//                                              // which have code of their own if all are usual
//     struct Kept { ... };                     // what a device keeps over time, with
//     static Kept kept(float target, float programmed, float xi, const Params &);
//     static float drifted(const Kept &, float programmed, const Time &);  // without new draws
//     static float readSigma(const Kept &, float drifted, const Time &, const Params &);
//
// Functions of a device and these are PULSORA_HD. Conductances are in uS, times
// in s since the end of programming; xi is standard normal. power_law.h and shift.h have the two
// laws of which most models are instances. A line in cmake/noise_models.cmake registers a model,
// and so does registerNoiseSource() (runtime/device_source.h) while a program runs.

// Before a loop of a model: if its length is a constant of at most 4, it is unrolled, and the loop
// over devices around it vectorises. GCC alone needs to be told.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define PULSORA_UNROLL_4 _Pragma("GCC unroll 4")
#else
#define PULSORA_UNROLL_4
#endif

namespace pulsora {

/// Parameters that every noise model has.
struct NoiseParams {
  float g_max = 25.0f;
  float g_min = 0.0f;
  float prog_noise_scale = 1.0f;
  float read_noise_scale = 1.0f;
  float drift_scale = 1.0f;

  template <class Visitor>
  static void fields(Visitor &f) {
    using P = NoiseParams;
    f(&P::g_max, "g_max", between(1e-9, kLargestSetting), "uS", "Largest conductance of a device.");
    f(&P::g_min, "g_min", between(0.0, kLargestSetting), "uS",
      "Smallest conductance of a device; below g_max.");
    f(&P::prog_noise_scale, "prog_noise_scale", between(0.0, kLargestSetting), "",
      "Factor on the programming error; 0 programs exactly.");
    f(&P::read_noise_scale, "read_noise_scale", between(0.0, kLargestSetting), "",
      "Factor on the read noise; 0 reads without noise.");
    f(&P::drift_scale, "drift_scale", between(0.0, kLargestSetting), "",
      "Factor on the drift; 0 keeps the programmed conductance.");
  }

  /// A conductance relative to g_max.
  PULSORA_HD float relative(float g) const { return g * pulsora::quotientOfNormal(1.0f, g_max); }

  template <class Check>
  void check(const Check &c) const {
    c.require(g_min < g_max, c.path("g_min"), " is ", g_min, " and ", c.path("g_max"), " is ",
              g_max, "; the smallest conductance must be below the largest");
  }
};

/// Conductances of a programmed device.
enum class Conductances {
  Target,      ///< as asked for
  Programmed,  ///< as they were after programming, before drift and read noise
  Now,         ///< as reads see them
};

/// Standard normals of a device that its drift takes: one that stays with the device, and one that
/// is drawn anew at each time.
struct DriftDraws {
  float kept;
  float anew;
};

/// Standard normals of a device in one realisation.
struct DeviceDraws {
  float program;
  DriftDraws drift;
  float read;
};

/// A device as a reading finds it: its conductance, and the standard deviation of its read noise.
struct DeviceReading {
  float conductance;
  float sigma;
};

/// The reading of a device that drifted to `drifted`, with read noise of standard deviation `sigma`
/// and its normal `xi`. The share `frozen` of the standard deviation belongs to the conductance.
template <class Model>
PULSORA_HD DeviceReading readingWith(float drifted, float sigma, float xi,
                                     const typename Model::Time &time,
                                     const typename Model::Params &p, float frozen) {
  return {Model::limited(pulsora::fma(frozen * sigma, xi, drifted), time, p), sigma};
}

/// The reading of a device that drifted from `programmed` to `drifted`.
template <class Model>
PULSORA_HD DeviceReading readingOfDrifted(float drifted, float programmed, float xi,
                                          const typename Model::Time &time,
                                          const typename Model::Params &p, float frozen) {
  const float sigma = Model::readSigma(drifted, programmed, time, p);
  return readingWith<Model>(drifted, sigma, xi, time, p, frozen);
}

/// The reading of a device that was programmed from `target` to `programmed`.
template <class Model>
PULSORA_HD DeviceReading readingOf(float target, float programmed, const DeviceDraws &draws,
                                   const typename Model::Time &time,
                                   const typename Model::Params &p, float frozen) {
  const float drifted = Model::drifted(target, programmed, draws.drift, time, p);
  return readingOfDrifted<Model>(drifted, programmed, draws.read, time, p, frozen);
}

/// The conductance that a read sees of a device with this target, all read noise being frozen.
template <class Model>
PULSORA_HD float conductanceOf(float target, const DeviceDraws &draws,
                               const typename Model::Time &time, const typename Model::Params &p) {
  const float programmed = Model::programmed(target, draws.program, p);
  return readingOf<Model>(target, programmed, draws, time, p, 1.0f).conductance;
}

/// The share of the variance of 1/f noise that is slower than `window`: of the frequencies between
/// 1 / age and 1 / (2 duration), where `duration` is that of a read.
inline double slowShare(double age, double duration, double window) {
  const double all = std::log((age + duration) / (2.0 * duration));
  if (!(all > 0.0)) return 1.0;
  return std::fmin(std::fmax(std::log((age + duration) / window) / all, 0.0), 1.0);
}

/// c_0 + c_1 x + ... with the coefficients of a list.
PULSORA_HD float polynomialOf(const FloatList &coefficients, float x) {
  float sum = 0.0f;
  PULSORA_UNROLL_4
  for (int i = coefficients.count - 1; i >= 0; --i)
    // The analyzer does not know that a list counts its numbers.
    // NOLINTNEXTLINE(clang-analyzer-security.ArrayBound)
    sum = pulsora::fma(sum, x, coefficients.values[i]);
  return sum;
}

/// The list of these numbers.
template <class... Numbers>
FloatList listOf(Numbers... numbers) {
  FloatList list;
  ((list.values[list.count++] = static_cast<float>(numbers)), ...);
  return list;
}

/// The place of x among ascending nodes: in segment [node, node + 1] at the share `u` of its
/// length, in [0, 1]; beyond the outermost nodes, at them.
struct TablePlace {
  int node = 0;
  float u = 0.0f;
};

PULSORA_HD TablePlace placeOf(const FloatList &nodes, float x) {
  TablePlace place;
  PULSORA_UNROLL_4
  for (int i = 0; i + 1 < nodes.count; ++i) {
    const float low = nodes.values[i];
    const float share = pulsora::clamp((x - low) / (nodes.values[i + 1] - low), 0.0f, 1.0f);
    place = x >= low || i == 0 ? TablePlace{i, share} : place;
  }
  return place;
}

/// The value at a place, linear between the entries values[first + node] of a table.
PULSORA_HD float valueAt(const FloatList &values, const TablePlace &place, int first = 0) {
  const float low = values.values[first + place.node];
  const float high = values.values[first + place.node + (place.u > 0.0f ? 1 : 0)];
  return pulsora::fma(place.u, high - low, low);
}

/// Requires that a standard deviation is not negative for any conductance of [0, g_max], of which
/// 101 are tried. sigma(g) takes the conductance relative to g_max.
template <class Check, class Sigma>
void requireSpread(const Check &c, const char *name, const Sigma &sigma) {
  for (int i = 0; i <= 100; ++i) {
    const float g = static_cast<float>(i) / 100.0f;
    const float value = sigma(g);
    c.require(value >= 0.0f, c.path(name), " gives the standard deviation ", value,
              " at the conductance ", g, " g_max; it must not be negative anywhere in [0, g_max]");
  }
}

/// Requires a table over conductances relative to g_max: ascending nodes in [0, 1].
template <class Check>
void requireNodes(const Check &c, const char *name, const FloatList &nodes) {
  c.require(nodes.count >= 1, c.path(name), " is empty; give at least one node");
  for (int i = 1; i < nodes.count; ++i) {
    c.require(nodes.values[i] > nodes.values[i - 1], c.path(name), "[", i, "] is ", nodes.values[i],
              ", after ", nodes.values[i - 1], "; nodes must ascend");
  }
}

/// Requires as many entries as a table has places.
template <class Check>
void requireEntries(const Check &c, const char *name, const FloatList &values, int count) {
  c.require(values.count == count, c.path(name), " has ", values.count, " entries; give ", count,
            ", one for each place of the table");
}

}  // namespace pulsora
