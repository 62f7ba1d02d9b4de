// The closed form of several pulses against the same pulses one by one.

#include <cmath>

#include "device_list.h"
#include "devices/pulse_rule.h"
#include "util/device_test_util.h"

namespace pulsora::testing {
namespace {

constexpr RandomKey kKey{0x2468ACE0U, 0x13579BDFU};

struct ClosedForm {
  std::string model;
  Value::Map values;
  double slopeUp, slopeDown;  // k, as d(change)/dw
  bool multiplicative;
  double reference = 0.0;
};

constexpr double kStep = 0.0045;  // as coarse as the closed form of 31 pulses admits
constexpr double kBound = 0.6;
constexpr double kNoise = 0.3;

std::vector<ClosedForm> closedForms() {
  const double k = -kStep / kBound;
  const Value::Map half{{"gamma_up", 0.5}, {"gamma_down", 0.25}};
  Value::Map halfAdditive = half;
  halfAdditive["mult_noise"] = Value(false);
  const Value::Map reference{{"reference_mean", 0.05}};
  Value::Map referenceMultiplicative = reference;
  referenceMultiplicative["mult_noise"] = Value(true);
  return {{"ConstantStep", {}, 0.0, 0.0, true},
          {"LinearStep", half, 0.5 * k, 0.25 * k, true},
          {"LinearStep", halfAdditive, 0.5 * k, 0.25 * k, false},
          {"SoftBounds", {}, k, k, true},
          {"SoftBounds", {{"mult_noise", false}}, k, k, false},
          {"SoftBoundsReference", reference, k, k, false, 0.05},
          {"SoftBoundsReference", referenceMultiplicative, k, k, true, 0.05}};
}

struct Expected {
  double mean, sd, skewness;
};

/// Moments of n pulses one after another, by their recursion about the fixed point (multiplicative)
/// or the mean (additive).
Expected sequentialMoments(const ClosedForm &form, double w, int n, bool up) {
  const double s = up ? kStep : -kStep;
  const double k = up ? form.slopeUp : form.slopeDown;
  const double v = w + form.reference;
  if (!form.multiplicative || k == 0.0) {
    double mean = v;
    double variance = 0.0;
    for (int i = 0; i < n; ++i) {
      mean += k * mean + s;
      variance = (1.0 + k) * (1.0 + k) * variance + s * s * kNoise * kNoise;
    }
    return {mean - form.reference, std::sqrt(variance), 0.0};
  }
  const double fixed = -s / k;
  const double rho = 1.0 + k;
  const double noise = k * kNoise;
  double m1 = v - fixed;
  double m2 = m1 * m1;
  double m3 = m2 * m1;
  for (int i = 0; i < n; ++i) {
    m1 *= rho;
    m2 *= rho * rho + noise * noise;
    m3 *= rho * rho * rho + 3.0 * rho * noise * noise;
  }
  const double variance = m2 - m1 * m1;
  const double third = m3 - 3.0 * m1 * m2 + 2.0 * m1 * m1 * m1;
  return {fixed + m1 - form.reference, std::sqrt(variance), third / std::pow(variance, 1.5)};
}

DeviceParams closedFormParams(const ClosedForm &form, const char *pulseNoise) {
  Value::Map values = form.values;
  values["dw_min"] = Value(kStep);
  values["dw_min_std"] = Value(kNoise);
  values["w_max"] = Value(kBound);
  values["w_min"] = Value(-kBound);
  values["pulse_noise"] = Value(pulseNoise);
  return makeParams(form.model, withoutSpread(form.model, values));
}

struct TypedMoments {
  Moments moments;
  bool holds;
};

template <class Device>
void typedMoments(const DeviceParams &params, float w, int n, bool up,
                  std::vector<TypedMoments> &out) {
  if constexpr (kHasClosedForm<Device>) {
    if (params.model().name != Device::kName) return;
    const auto &p = params.as<typename Device::Params>();
    const auto r = Device::response(typename Device::Cell{}, p);
    const Moments m = Device::pulses(w, pulseSum(static_cast<float>(n), p), up, r, p);
    out.push_back({m, closedFormHolds(w, m, r, p)});
  }
}

template <class... Devices>
TypedMoments momentsOf(TypeList<Devices...>, const DeviceParams &params, float w, int n, bool up) {
  std::vector<TypedMoments> out;
  (typedMoments<Devices>(params, w, n, up, out), ...);
  if (out.size() != 1) throw std::logic_error(params.model().name + " has no closed form");
  return out[0];
}

template <class... Devices>
std::vector<std::string> modelsWithClosedForm(TypeList<Devices...>) {
  std::vector<std::string> names;
  ((kHasClosedForm<Devices> ? names.push_back(Devices::kName) : void()), ...);
  return names;
}

TEST(ClosedForms, Property44_EveryModelThatHasOneIsTestedHere) {
  for (const std::string &name : modelsWithClosedForm(AllDevices{})) {
    const auto forms = closedForms();
    EXPECT_TRUE(std::any_of(forms.begin(), forms.end(), [&](const ClosedForm &f) {
      return f.model == name;
    })) << name;
  }
}

TEST(ClosedForms, Property44_MomentsAreThoseOfTheSequentialRule) {
  for (const ClosedForm &form : closedForms()) {
    const DeviceParams params = closedFormParams(form, "closed_form");
    for (int n : {1, 2, 5, 31}) {
      for (bool up : {true, false}) {
        for (float w : {-0.2f, 0.0f, 0.1f}) {
          const Expected expected = sequentialMoments(form, static_cast<double>(w), n, up);
          const auto [m, holds] = momentsOf(AllDevices{}, params, w, n, up);
          EXPECT_TRUE(holds) << form.model << ' ' << n;
          EXPECT_NEAR(m.mean, expected.mean, 1e-6 * kStep * n + 3e-8) << form.model << ' ' << n;
          // The variance of multiplicative noise is the leading term in k sigma.
          EXPECT_NEAR(std::abs(m.sd), expected.sd, (n == 1 ? 2e-6 : 7e-5) * expected.sd)
              << form.model << ' ' << n;
          EXPECT_LE(std::abs(expected.skewness),
                    std::sqrt(static_cast<double>(m.skewnessSquared)) + 1e-6);
          EXPECT_LT(std::abs(expected.skewness), kNeglectedSkewness);
        }
      }
    }
  }
}

template <class Device>
void onePulseIsItsClosedForm() {
  if constexpr (kHasClosedForm<Device>) {
    typename Device::Params p;
    for (uint64_t cell = 0; cell < 20000; ++cell) {
      p.w_max = cell % 10 == 0 ? 0.001f : 0.6f;  // some slopes below -1
      CellDraws draws(kKey, cell);
      const auto r = Device::response(Device::construct(p, draws, false), p);
      const float z = normalOfSample(kKey, Purpose::CycleNoise, cell, 3);
      const float w = clipWeight(0.3f * normalOfSample(kKey, Purpose::UserDraw, cell, 0), r);
      const bool up = cell % 2 == 0;
      const Moments m = Device::pulses(w, pulseSum(1.0f, p), up, r, p);
      ASSERT_EQ(bitCast<uint32_t>(pulsora::fma(m.sd, z, m.mean)),
                bitCast<uint32_t>(Device::pulse(w, up, r, p, z)))
          << Device::kName << " cell " << cell;
      if (kNoPulseIsExact<Device>) {
        const Moments none = Device::pulses(w, {0.0f, 0.0f}, up, r, p);
        ASSERT_EQ(bitCast<uint32_t>(pulsora::fma(none.sd, z, none.mean)), bitCast<uint32_t>(w));
      }
    }
  }
}

template <class... Devices>
void onePulseIsItsClosedForm(TypeList<Devices...>) {
  (onePulseIsItsClosedForm<Devices>(), ...);
}

TEST(ClosedForms, Property44_OnePulseHasTheBitsOfItsClosedForm) {
  onePulseIsItsClosedForm(AllDevices{});
}

/// If SafeRange calls four samples safe, the rule takes closed forms in each sample, and no bound
/// changes a weight, even for the largest normals.
template <class Device>
void safeRangesAreSafe() {
  if constexpr (kHasClosedForm<Device>) {
    typename Device::Params p;
    uint64_t safeCases = 0;
    for (uint64_t cell = 0; cell < 50000; ++cell) {
      CellDraws draws(kKey, cell);
      const auto r = Device::response(Device::construct(p, draws, false), p);
      const Philox4 random = draw(kKey, Purpose::UserDraw, cell, 1);
      const int most = 1 + static_cast<int>(random.v[0] % 12);
      if (!closedFormsUpTo<Device>(most, r, p)) continue;
      // Near a bound, where it matters.
      const float distance = 0.1f * uniform(random.v[1]);
      float w = clipWeight(cell % 2 ? r.w_max - distance : r.w_min + distance, r);
      int n[4];
      int total = 0;
      for (int s = 0; s < 4; ++s) {
        n[s] = static_cast<int>(random.v[2] >> 8 * s) % (most + 1);
        n[s] = n[s] < 0 ? 0 : n[s];
        total += n[s];
      }
      const SafeRange safe = SafeRange::of(Device::reach(r, p), r, p);
      if (!safe.holds(w, static_cast<float>(total))) continue;
      ++safeCases;
      for (int s = 0; s < 4; ++s) {
        if (n[s] == 0) continue;
        const bool up = cell % 2 != 0;
        const float z = up == (r.step(up) > 0.0f) ? 4.855f : -4.855f;
        bool holds = false;
        const Moments m = Device::pulses(w, pulseSum(static_cast<float>(n[s]), p), up, r, p);
        const float closed =
            closedPulses<Device>(w, pulseSum(static_cast<float>(n[s]), p), up, r, p, z, holds);
        ASSERT_TRUE(holds || n[s] == 1) << Device::kName << " cell " << cell;
        ASSERT_EQ(closed, pulsora::fma(m.sd, z, m.mean)) << Device::kName << " cell " << cell;
        w = closed;
      }
    }
    EXPECT_GT(safeCases, 10000U) << Device::kName;
  }
}

template <class... Devices>
void safeRangesAreSafe(TypeList<Devices...>) {
  (safeRangesAreSafe<Devices>(), ...);
}

TEST(ClosedForms, Property44_SafeRangesAreSafe) { safeRangesAreSafe(AllDevices{}); }

TEST(ClosedForms, Property44_DrawsAgreeWithTheSequentialRuleInDistribution) {
  // 1e6 cells per draw, all with the same parameters; Kolmogorov-Smirnov on 1e5 of them at p =
  // 1e-6.
  constexpr int64_t kSide = 1000;
  constexpr auto kSome = 100000;
  constexpr double kCells = 1e6;
  const double limit = std::sqrt(std::log(2.0 / 1e-6) / 2.0) * std::sqrt(2.0 / kSome);
  Context context;
  context.cpu.threads = 2;
  for (const ClosedForm &form : closedForms()) {
    PulsedDevice closed(context, closedFormParams(form, "closed_form"), kSide, kSide, kKey);
    PulsedDevice sequential(context, closedFormParams(form, "sequential"), kSide, kSide, {7, 8});
    for (int n : {1, 2, 5, 31}) {
      const bool up = n != 5;
      const Expected expected = sequentialMoments(form, static_cast<double>(0.1f), n, up);
      std::vector<float> drawn[2];
      for (PulsedDevice *device : {&closed, &sequential}) {
        fillWeights(*device, [](int64_t) { return 0.1f; });
        device->applyPulses(
            context, TestWords::all(kSide, kSide, 1, n, up, static_cast<uint64_t>(n)).view());
        std::vector<float> &values = drawn[device == &sequential];
        values = storedWeights(*device);
        const Sample sample = statistics(values);
        EXPECT_NEAR(sample.mean, expected.mean, 5.0 * expected.sd / std::sqrt(kCells))
            << form.model << ' ' << n;
        EXPECT_NEAR(sample.sd, expected.sd, 5.0 * expected.sd / std::sqrt(2.0 * kCells))
            << form.model << ' ' << n;
        values.resize(kSome);
      }
      EXPECT_LT(kolmogorovSmirnov(drawn[0], drawn[1]), limit) << form.model << ' ' << n;
    }
  }
}

TEST(ClosedForms, Property44_GivesWayNearABoundAndWhereTheShapeIsNotNormal) {
  const DeviceParams soft = closedFormParams(closedForms()[3], "closed_form");
  EXPECT_FALSE(momentsOf(AllDevices{}, soft, 0.0f, 200, true).holds);
  const DeviceParams additive = closedFormParams(closedForms()[4], "closed_form");
  EXPECT_TRUE(momentsOf(AllDevices{}, additive, 0.5f, 5, true).holds);
  EXPECT_FALSE(momentsOf(AllDevices{}, additive, 0.595f, 5, true).holds);
  const DeviceParams constant = closedFormParams(closedForms()[0], "closed_form");
  EXPECT_TRUE(momentsOf(AllDevices{}, constant, 0.54f, 5, true).holds);
  EXPECT_FALSE(momentsOf(AllDevices{}, constant, 0.57f, 5, true).holds);
}

}  // namespace
}  // namespace pulsora::testing
