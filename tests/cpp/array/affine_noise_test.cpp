// noise_merge = "batch" of models whose step is an affine function of the weight
// (devices/affine_moments.h).

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "array/device_contract.h"
#include "devices/batch_noise.h"
#include "devices/linear_step.h"
#include "devices/soft_bounds.h"
#include "devices/soft_bounds_reference.h"

namespace pulsora::testing {
namespace {

constexpr int64_t kRows = 19;
constexpr int64_t kCols = 151;
constexpr uint64_t kFirstSample = 1021;

struct Setting {
  std::string model;
  Value::Map values;
};

/// Both kinds of noise of the three models, with every term of a model.
std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const bool multiplicative : {true, false}) {
    const Value noise(multiplicative);
    all.push_back({"SoftBounds", {{"mult_noise", noise}, {"up_down", Value(0.1)}}});
    all.push_back({"SoftBoundsReference",
                   {{"mult_noise", noise},
                    {"reference_mean", Value(0.05)},
                    {"reference_std", Value(0.05)},
                    {"slope_up_dtod", Value(0.1)},
                    {"slope_down_dtod", Value(0.1)},
                    {"subtract_symmetry_point", Value(true)}}});
    all.push_back({"LinearStep",
                   {{"mult_noise", noise},
                    {"gamma_up", Value(-0.3)},
                    {"gamma_down", Value(0.5)},
                    {"gamma_up_dtod", Value(0.1)},
                    {"allow_increasing", Value(true)}}});
  }
  return all;
}

std::string nameOf(const Setting &setting) {
  return setting.model + (*setting.values.at("mult_noise").boolean() ? ", multiplicative noise"
                                                                     : ", additive noise");
}

DeviceParams deviceOf(const Setting &setting, const std::string &noiseMerge,
                      const Value::Map &more = {}) {
  Value::Map values = setting.values;
  values.emplace("dw_min", Value(0.002));
  values["noise_merge"] = Value(noiseMerge);
  for (const auto &[name, value] : more) values[name] = value;
  return makeParams(setting.model, values);
}

/// Calls work(Device{}) for the model of this name.
template <class Work>
auto withModel(const std::string &model, const Work &work) {
  if (model == "LinearStep") return work(LinearStep{});
  if (model == "SoftBounds") return work(SoftBounds{});
  return work(SoftBoundsReference{});
}

std::vector<float> updated(const DeviceParams &params, const TestWords &batch,
                           const Context &context, int64_t rows = kRows, int64_t cols = kCols) {
  PulsedDevice array(context, params, rows, cols, kKey);
  fillWeights(array, startWeight);
  array.applyPulses(context, batch.view());
  return storedWeights(array);
}

/// The weight by the moments of signed counts, one entry per sample.
template <class Device>
float mergedInOrder(float w, const std::vector<int> &counts, const typename Device::Response &r,
                    const typename Device::Params &p, float z, bool &holds) {
  return withKindOfNoise(p, [&](auto kind) {
    constexpr bool kMultiplicative = decltype(kind)::value;
    const AffineMaps maps = Device::affineMaps(r, p);
    AffineMoments moments = AffineMoments::of(w);
    for (const int n : counts) {
      if (n == 0) continue;
      moments.template add<kMultiplicative>(static_cast<float>(std::abs(n)), n > 0, maps,
                                            p.dw_min_std);
    }
    return moments.template drawn<kMultiplicative>(w, maps, r, p, z, holds);
  });
}

struct ByRule {
  std::vector<float> weights;
  std::vector<bool> atOnce;
  std::vector<int> pulses;
};

/// The definition, cell by cell: at once where that holds, otherwise sample by sample.
template <class Device>
ByRule byRuleOf(const DeviceParams &params, const TestWords &batch, int64_t rows, int64_t cols) {
  const auto &p = params.as<typename Device::Params>();
  PulsedDevice array(cpu(), params, rows, cols, kKey);
  fillWeights(array, startWeight);
  const auto planes = storedCells(array);
  const PulseWords words = batch.view();
  ByRule out;
  out.weights = storedWeights(array);
  const auto bySample = referenceUpdate<Device>(params, array, {&batch});
  for (size_t i = 0; i < out.weights.size(); ++i) {
    const auto response = Device::response(cellAt<Device>(planes, i), p);
    std::vector<int> counts;
    int total = 0;
    for (int64_t s = 0; s < words.samples; ++s) {
      counts.push_back(
          batch.coincidences(s, static_cast<int64_t>(i) / cols, static_cast<int64_t>(i) % cols));
      total += std::abs(counts.back());
    }
    bool holds = false;
    const float z = normalOfUpdate(kKey, i, words.firstSample);
    const float merged = mergedInOrder<Device>(out.weights[i], counts, response, p, z, holds);
    out.weights[i] = holds ? merged : bySample[i];
    out.atOnce.push_back(holds);
    out.pulses.push_back(total);
  }
  return out;
}

ByRule byRule(const Setting &setting, const DeviceParams &params, const TestWords &batch,
              int64_t rows = kRows, int64_t cols = kCols) {
  return withModel(setting.model, [&](auto device) {
    return byRuleOf<decltype(device)>(params, batch, rows, cols);
  });
}

TEST(AffineNoise, Property36_EveryKernelReproducesTheRuleToTheBit) {
  for (const Setting &setting : settings()) {
    const DeviceParams device = deviceOf(setting, "batch", {{"corrupt_devices_prob", Value(0.05)}});
    for (const int slots : {1, 3, 4, 5, 16, 17, 31, 32, 40}) {
      const TestWords words = TestWords::random(kRows, kCols, 13, slots, 99, kFirstSample);
      const ByRule rule = byRule(setting, device, words);
      for (const Isa isa : supportedIsas()) {
        for (const int threads : {1, 3}) {
          EXPECT_TRUE(sameBits(updated(device, words, cpu(threads, isa)), rule.weights))
              << nameOf(setting) << ", " << isaName(isa) << ", " << slots << " slots, " << threads
              << " threads";
        }
      }
    }
  }
}

TEST(AffineNoise, Property36_OtherPulseKindsNarrowArraysAndManySamplesToo) {
  for (const Setting &setting : settings()) {
    const DeviceParams device = deviceOf(setting, "batch");
    for (const PulseKind kind :
         {PulseKind::Words, PulseKind::TwoPass, PulseKind::MeanCount, PulseKind::Implicit}) {
      for (const int slots : {1, 3, 31}) {
        const TestWords words = TestWords::random(11, 7, 70, slots, 5, kFirstSample).as(kind, 5);
        const ByRule rule = byRule(setting, device, words, 11, 7);
        for (const Isa isa : supportedIsas()) {
          EXPECT_TRUE(sameBits(updated(device, words, cpu(1, isa), 11, 7), rule.weights))
              << nameOf(setting) << ", " << isaName(isa) << ", " << slots << " slots, kind "
              << static_cast<int>(kind);
        }
      }
    }
  }
}

TEST(AffineNoise, Property44_CellsNearABoundTakeTheSamplesOneByOneAndNoneLeavesItsBounds) {
  for (const Setting &setting : settings()) {
    const TestWords words = TestWords::random(kRows, kCols, 40, 8, 99, kFirstSample);
    const DeviceParams device = deviceOf(setting, "batch");
    const ByRule rule = byRule(setting, device, words);
    const auto merged = updated(device, words, cpu());
    const auto bySample = updated(deviceOf(setting, "none"), words, cpu());
    PulsedDevice array(cpu(), device, kRows, kCols, kKey);
    const CellDescription cells = describe(array);
    int near = 0;
    int different = 0;
    for (size_t i = 0; i < merged.size(); ++i) {
      if (rule.pulses[i] == 0) continue;
      EXPECT_GE(merged[i], cells.wMin[i]) << nameOf(setting) << ' ' << i;
      EXPECT_LE(merged[i], cells.wMax[i]) << nameOf(setting) << ' ' << i;
      if (rule.atOnce[i]) {
        different += merged[i] != bySample[i];
      } else {
        EXPECT_EQ(bitCast<uint32_t>(merged[i]), bitCast<uint32_t>(bySample[i])) << i;
        ++near;
      }
    }
    EXPECT_GT(near, 100) << nameOf(setting);
    EXPECT_GT(different, 1000) << nameOf(setting);
  }
}

/// Moments in double precision, pulse by pulse: the mean, the variance and the third central
/// moment, which the recursion of the model's formula gives exactly.
struct Exact {
  double mean, variance, third;

  void pulse(double k, double c, double s, double sigma, bool multiplicative) {
    const double rho = 1.0 + k;
    const double t = k * mean + c;
    const double noisy = multiplicative ? k * sigma : 0.0;
    const double own = multiplicative ? t * sigma : s * sigma;
    third =
        (rho * rho * rho + 3.0 * rho * noisy * noisy) * third + 6.0 * rho * noisy * own * variance;
    variance = (rho * rho + noisy * noisy) * variance + own * own;
    mean += t;
  }
};

template <class Device>
void checkMoments(const Setting &setting, int &merged, int &skewed) {
  const DeviceParams params = deviceOf(setting, "batch");
  auto p = params.as<typename Device::Params>();
  const bool multiplicative = p.mult_noise;
  for (uint64_t cell = 0; cell < 4000; ++cell) {
    const Philox4 random = draw(kKey, Purpose::UserDraw, cell, 7);
    p.dw_min = 0.0005f * static_cast<float>(1U << random.v[0] % 7);
    CellDraws draws(kKey, cell);
    const auto r = Device::response(Device::construct(p, draws, false), p);
    const float w = pulsora::fma(r.w_max - r.w_min, uniform(random.v[1]), r.w_min);
    const AffineMaps maps = Device::affineMaps(r, p);
    // The maps are those of the model's pulse.
    for (const bool up : {true, false}) {
      const AffineMap &map = up ? maps.up : maps.down;
      EXPECT_NEAR(Device::pulse(w, up, r, p, 0.0f), w + map.slope * w + map.step, 3e-7f);
      const float noise = multiplicative ? map.slope * w + map.step : map.noise;
      EXPECT_NEAR(Device::pulse(w, up, r, p, 1.0f) - Device::pulse(w, up, r, p, 0.0f),
                  noise * p.dw_min_std, 3e-7f);
    }
    const int samples = 1 + static_cast<int>(random.v[2] % 60);
    AffineMoments moments = AffineMoments::of(w);
    Exact exact{static_cast<double>(w), 0.0, 0.0};
    for (int s = 0; s < samples; ++s) {
      const Philox4 counts = draw(kKey, Purpose::UserDraw, cell, 1000 + static_cast<uint64_t>(s));
      const int n = static_cast<int>(counts.v[0] % 5);
      const bool up = counts.v[1] % 8 < 2 + cell % 5;
      const AffineMap &map = up ? maps.up : maps.down;
      if (multiplicative)
        moments.add<true>(static_cast<float>(n), up, maps, p.dw_min_std);
      else
        moments.add<false>(static_cast<float>(n), up, maps, p.dw_min_std);
      for (int k = 0; k < n; ++k) {
        exact.pulse(static_cast<double>(map.slope), static_cast<double>(map.step),
                    static_cast<double>(map.noise), static_cast<double>(p.dw_min_std),
                    multiplicative);
      }
    }
    bool holds = false;
    if (multiplicative)
      moments.drawn<true>(w, maps, r, p, 0.0f, holds);
    else
      moments.drawn<false>(w, maps, r, p, 0.0f, holds);
    if (!holds || moments.pulses == 0.0f) {
      skewed += holds ? 0 : 1;
      continue;
    }
    ++merged;
    const double sigma = static_cast<double>(p.dw_min_std);
    EXPECT_NEAR(static_cast<double>(moments.mean), exact.mean, 2e-6);
    EXPECT_NEAR(sigma * sigma * static_cast<double>(moments.spread), exact.variance,
                1e-4 * exact.variance + 1e-18)
        << setting.model << " cell " << cell;
    if (exact.variance > 1e-12) {
      EXPECT_LT(std::abs(exact.third),
                static_cast<double>(kNeglectedSkewness) * std::pow(exact.variance, 1.5))
          << setting.model << " cell " << cell;
    }
  }
}

TEST(AffineNoise, Property44_MomentsAreThoseOfPulseAfterPulse) {
  // 4000 cells of each setting, steps from 0.0005 to 0.032, up to 60 samples of up to 4 pulses.
  for (const Setting &setting : settings()) {
    SCOPED_TRACE(nameOf(setting));
    int merged = 0;
    int deferred = 0;
    withModel(setting.model,
              [&](auto device) { checkMoments<decltype(device)>(setting, merged, deferred); });
    EXPECT_GT(merged, 500);
    EXPECT_GT(deferred, 100);
  }
}

TEST(AffineNoise, Property44_DrawsAgreeWithPulseAfterPulseInDistribution) {
  // 1e6 cells that all see the same 12 samples: 6 of 3 pulses up, then 6 of 3 down; mean and spread
  // at 5 sigma, Kolmogorov-Smirnov on 1e5 cells at p = 1e-6. The second array draws every pulse.
  constexpr int64_t kSide = 1000;
  constexpr size_t kSome = 100000;
  constexpr double kCells = 1e6;
  const double limit = std::sqrt(std::log(2.0 / 1e-6) / 2.0) * std::sqrt(2.0 / kSome);
  for (const Setting &setting : settings()) {
    SCOPED_TRACE(nameOf(setting));
    Value::Map values = withoutSpread(setting.model);
    values["reference_mean"] = Value(0.05);
    if (setting.model != "SoftBoundsReference") values.erase("reference_mean");
    std::vector<float> drawn[2];
    for (const int which : {0, 1}) {
      if (which == 1) values["pulse_noise"] = Value("sequential");
      const DeviceParams params = deviceOf(setting, which == 0 ? "batch" : "none", values);
      PulsedDevice array(cpu(2), params, kSide, kSide, which == 0 ? kKey : RandomKey{7, 8});
      fillWeights(array, [](int64_t) { return 0.1f; });
      TestWords words = TestWords::all(kSide, kSide, 12, 3, true, 500);
      words.turn(6, 12);
      Exact exact{static_cast<double>(0.1f), 0.0, 0.0};
      withModel(setting.model, [&](auto device) {
        using Device = decltype(device);
        const auto &p = params.as<typename Device::Params>();
        const auto r = Device::response(cellAt<Device>(storedCells(array), 0), p);
        const AffineMaps maps = Device::affineMaps(r, p);
        for (int n = 0; n < 36; ++n) {
          const AffineMap &map = n < 18 ? maps.up : maps.down;
          exact.pulse(static_cast<double>(map.slope), static_cast<double>(map.step),
                      static_cast<double>(map.noise), static_cast<double>(p.dw_min_std),
                      p.mult_noise);
        }
        bool holds = which == 1;
        if (which == 0)
          mergedInOrder<Device>(0.1f, {3, 3, 3, 3, 3, 3, -3, -3, -3, -3, -3, -3}, r, p, 0.0f,
                                holds);
        EXPECT_TRUE(holds);
      });
      array.applyPulses(cpu(2), words.view());
      drawn[which] = storedWeights(array);
      const Sample sample = statistics(drawn[which]);
      const double sd = std::sqrt(exact.variance);
      EXPECT_NEAR(sample.mean, exact.mean, 5.0 * sd / std::sqrt(kCells)) << which;
      EXPECT_NEAR(sample.sd, sd, 5.0 * sd / std::sqrt(2.0 * kCells)) << which;
      drawn[which].resize(kSome);
    }
    EXPECT_LT(kolmogorovSmirnov(drawn[0], drawn[1]), limit);
  }
}

TEST(AffineNoise, Property40_TheLedgerCountsEveryCoincidence) {
  for (const int slots : {1, 31, 40}) {
    for (const PulseKind kind : {PulseKind::Words, PulseKind::TwoPass, PulseKind::MeanCount}) {
      const TestWords words = TestWords::random(kRows, kCols, 13, slots, 7).as(kind, 7);
      PulsedDevice array(cpu(3), deviceOf(settings()[0], "batch"), kRows, kCols, kKey);
      array.applyPulses(cpu(3), words.view());
      uint64_t count = 0;
      for (int64_t s = 0; s < 13; ++s) {
        for (int64_t i = 0; i < array.size(); ++i)
          count += static_cast<uint64_t>(std::abs(words.coincidences(s, i / kCols, i % kCols)));
      }
      EXPECT_EQ(array.pulseCount(cpu()), count);
    }
  }
}

TEST(AffineNoise, Property44_SteepCellsAreDeferredWhateverTheirNoise) {
  // Steps of half the range: no form of several pulses holds, and nothing overflows.
  for (const Setting &setting : settings()) {
    for (const double step : {0.5, 1e4}) {
      const DeviceParams batch = deviceOf(setting, "batch", {{"dw_min", Value(step)}});
      const DeviceParams none = deviceOf(setting, "none", {{"dw_min", Value(step)}});
      const TestWords words = TestWords::random(kRows, kCols, 13, 3, 9, kFirstSample);
      const ByRule rule = byRule(setting, batch, words);
      EXPECT_TRUE(sameBits(updated(batch, words, cpu()), rule.weights)) << nameOf(setting);
      for (const float w : rule.weights) EXPECT_TRUE(isFinite(w)) << nameOf(setting);
      if (step > 1.0) {
        EXPECT_TRUE(sameBits(rule.weights, updated(none, words, cpu()))) << nameOf(setting);
      }
    }
  }
}

}  // namespace
}  // namespace pulsora::testing
