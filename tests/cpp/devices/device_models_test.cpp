// Each device model against its own formula, written down here a second time in double precision.

#include <cmath>

#include "util/device_test_util.h"

namespace pulsora::testing {
namespace {

constexpr RandomKey kKey{0x2468ACE0U, 0x13579BDFU};

// The mean step of each model: asymmetric bounds, an asymmetry, no spread between cells.

constexpr double kDw = 0.001;
constexpr double kMax = 0.55;
constexpr double kMin = -0.45;
constexpr double kUpDown = 0.1;  // weakens the down step

struct Model {
  std::string label;
  DeviceParams params;
  std::function<double(double w, bool up)> step;  // relative to the plain step, >= 0

  double change(double w, bool up) const {
    return up ? kDw * step(w, true) : -kDw * (1.0 - kUpDown) * step(w, false);
  }
  double granularity() const { return 0.5 * (change(0.0, true) - change(0.0, false)); }
};

DeviceParams nominal(const std::string &model, Value::Map values) {
  values["dw_min"] = Value(kDw);
  values["w_max"] = Value(kMax);
  values["w_min"] = Value(kMin);
  values["up_down"] = Value(kUpDown);
  return makeParams(model, withoutSpread(model, std::move(values)));
}

double interpolated(const std::vector<double> &nodes, double place) {
  const double at = place * static_cast<double>(nodes.size() - 1);
  const auto node = std::min(static_cast<size_t>(at), nodes.size() - 2);
  const double share = at - static_cast<double>(node);
  return (1.0 - share) * nodes[node] + share * nodes[node + 1];
}

double interpolated(const std::vector<double> &at, const std::vector<double> &nodes, double w) {
  if (w <= at.front()) return nodes.front();
  size_t i = 0;
  while (i + 2 < at.size() && w > at[i + 1]) ++i;
  const double share = std::min((w - at[i]) / (at[i + 1] - at[i]), 1.0);
  return (1.0 - share) * nodes[i] + share * nodes[i + 1];
}

std::vector<Model> models(double noise) {
  const auto soft = [](double w, bool up) { return 1.0 - w / (up ? kMax : kMin); };
  const auto with = [&](Value::Map values) {
    values["dw_min_std"] = Value(noise);
    return values;
  };
  // v* = (a+ - a-)/(a+/b+ + a-/b-), with b- the magnitude of the lower bound.
  const double symmetric = kUpDown / (1.0 / kMax - (1.0 - kUpDown) / kMin);
  const Value::List up{0.2, 0.7, 1.0, 0.4};
  const Value::List down{0.5, 1.5};
  return {
      {"ConstantStep", nominal("ConstantStep", with({})), [](double, bool) { return 1.0; }},
      {"LinearStep",
       nominal("LinearStep",
               with({{"gamma_up", 0.3}, {"gamma_down", -0.6}, {"allow_increasing", true}})),
       [](double w, bool isUp) { return isUp ? 1.0 - 0.3 * w / kMax : 1.0 + 0.6 * w / kMin; }},
      {"LinearStepReversed",
       nominal("LinearStep", with({{"gamma_up", 0.8},
                                   {"gamma_down", 0.9},
                                   {"reverse_up", true},
                                   {"reverse_down", true},
                                   {"reverse_offset", 0.05}})),
       [](double w, bool isUp) {
         return isUp ? 1.0 - 0.8 * w / (kMin - 0.05) : 1.0 - 0.9 * w / (kMax + 0.05);
       }},
      {"SoftBounds", nominal("SoftBounds", with({})), soft},
      {"SoftBoundsAdditive", nominal("SoftBounds", with({{"mult_noise", false}})), soft},
      {"SoftBoundsReference",
       nominal("SoftBoundsReference",
               with({{"subtract_symmetry_point", true}, {"reference_mean", 0.02}})),
       [=](double w, bool isUp) { return soft(w + 0.02 + symmetric, isUp); }},
      {"ExpStep",
       nominal("ExpStep", with({{"dw_min_std_add", 0.0005}, {"dw_min_std_slope", 0.001}})),
       [](double w, bool isUp) {
         const double z = 2.0 * 0.244 * w / (kMax - kMin) + 0.2425;
         return isUp ? std::max(1.0 - 0.00081 * std::exp(12.44625 * z), 0.0)
                     : std::max(1.0 - 0.36833 * std::exp(-12.78785 * z), 0.0);
       }},
      {"PowStep", nominal("PowStep", with({{"pow_gamma", 1.7}, {"pow_up_down", -0.2}})),
       [](double w, bool isUp) {
         return isUp ? std::pow((kMax - w) / (kMax - kMin), 1.7 * 0.8)
                     : std::pow((w - kMin) / (kMax - kMin), 1.7);
       }},
      {"PiecewiseStep",
       nominal("PiecewiseStep", with({{"piecewise_up", up}, {"piecewise_down", down}})),
       [](double w, bool isUp) {
         const double place = (w - kMin) / (kMax - kMin);
         return isUp ? interpolated({0.2, 0.7, 1.0, 0.4}, place) : interpolated({0.5, 1.5}, place);
       }},
      {"TableStep",
       nominal("TableStep", with({{"table_w", Value::List{-0.4, -0.25, 0.3, 0.55}},
                                  {"table_up", up},
                                  {"table_down", Value::List{1.5, 1.0, 0.5, 0.4}}})),
       [](double w, bool isUp) {
         return isUp ? interpolated({-0.4, -0.25, 0.3, 0.55}, {0.2, 0.7, 1.0, 0.4}, w)
                     : interpolated({-0.4, -0.25, 0.3, 0.55}, {1.5, 1.0, 0.5, 0.4}, w);
       }},
      {"TableStepCubic",
       nominal("TableStep", with({{"table_up", Value::List{0.25, 1.0, 0.25}},
                                  {"table_curve", "cubic"},
                                  {"table_spread", "absolute"}})),
       // Symmetric about its largest node, where the monotone cubic is level; at an end its slope
       // is (3 d - (-d))/2 = 2 d, with d = 0.75 per interval, within the limit of 3 d.
       [](double w, bool isUp) {
         if (!isUp) return 1.0;
         const double t = 1.0 - std::abs(2.0 * (w - kMin) / (kMax - kMin) - 1.0);
         return 0.25 + t * (1.5 - 0.75 * t);
       }},
  };
}

TEST(DeviceModels, Property35_MeanCurvesFollowTheRecursionOfTheirFormula) {
  for (const Model &model : models(0.0)) {
    PulsedDevice array(Context{}, model.params, 1, 3, kKey);
    double w = 0.0;
    for (uint64_t s = 0; s < 1400; ++s) {
      const bool up = s < 400 || s >= 1200;
      array.applyPulses(Context{}, TestWords::all(1, 3, 1, 1, up, s).view());
      w = std::clamp(w + model.change(w, up), kMin, kMax);
      for (const float each : storedWeights(array))
        ASSERT_NEAR(each, w, 1e-5) << model.label << " at pulse " << s;
    }
  }
}

TEST(DeviceModels, Property35_MeanCurvesUnderNoise) {
  // 1e4 cells, 5 standard errors; pulses one by one and five per sample.
  for (const Model &model : models(0.3)) {
    for (int slots : {1, 5}) {
      PulsedDevice array(Context{}, model.params, 100, 100, kKey);
      double w = 0.0;
      for (int s = 0; s < 600 / slots; ++s) {
        const bool up = s < 300 / slots;
        array.applyPulses(Context{},
                          TestWords::all(100, 100, 1, slots, up, static_cast<uint64_t>(s)).view());
        for (int n = 0; n < slots; ++n) w += model.change(w, up);
        if ((s + 1) % (100 / slots) != 0) continue;
        const Sample sample = statistics(storedWeights(array));
        ASSERT_GT(sample.sd, 0.0);
        EXPECT_NEAR(sample.mean, w, 5.0 * sample.meanError()) << model.label << " at sample " << s;
      }
    }
  }
}

TEST(DeviceModels, GranularityIsThatOfTheFormula) {
  for (const Model &model : models(0.3)) {
    EXPECT_NEAR(model.params.granularity(), model.granularity(), 1e-6 * kDw) << model.label;
  }
}

TEST(DeviceModels, Property34_AsymmetryPullsByTheDifferenceOfTheSteps) {
  // One pulse up and one down in each of 4e4 cells.
  for (const Model &model : models(0.3)) {
    for (double start : {0.2, -0.2}) {
      PulsedDevice array(Context{}, model.params, 200, 200, kKey);
      fillWeights(array, [&](int64_t) { return static_cast<float>(start); });
      array.applyPulses(Context{}, TestWords::all(200, 200, 1, 1, true, 0).view());
      array.applyPulses(Context{}, TestWords::all(200, 200, 1, 1, false, 1).view());
      const Sample sample = statistics(storedWeights(array));
      const double drift = sample.mean - static_cast<double>(static_cast<float>(start));
      const double up = model.change(start, true);
      EXPECT_NEAR(drift, up + model.change(start + up, false), 5.0 * sample.meanError())
          << model.label;
      // -lr |G| (q- - q+), up to the second order in dw_min.
      EXPECT_NEAR(drift, up + model.change(start, false),
                  5.0 * sample.meanError() + 10.0 * kDw * kDw)
          << model.label;
    }
  }
}

TEST(DeviceModels, Property32_RandomPulsesLeadToTheSymmetricPoint) {
  // 4000 cells, each with its own random directions.
  constexpr int64_t kCells = 4000;
  constexpr double kUp = 0.004;
  constexpr double kDown = 0.6 * kUp;
  const double strength = kUp / 0.6 + kDown / 0.5;
  const double symmetric = (kUp - kDown) / strength;
  const Value::Map common{{"dw_min", kUp}, {"up_down", 0.4}, {"w_max", 0.6}, {"w_min", -0.5}};
  const auto device = [&](const std::string &model, Value::Map values) {
    values.insert(common.begin(), common.end());
    return makeParams(model, withoutSpread(model, values));
  };
  struct Case {
    DeviceParams params;
    double target;
  };
  for (const auto &[params, target] :
       {Case{device("SoftBounds", {}), symmetric},
        Case{device("LinearStep", {{"gamma_up", 1.0}, {"gamma_down", 1.0}}), symmetric},
        Case{device("SoftBoundsReference", {{"subtract_symmetry_point", true}}), 0.0}}) {
    PulsedDevice array(Context{}, params, kCells, 1, kKey);
    fillWeights(array, [](int64_t) { return -0.3f; });
    uint64_t done = 0;
    for (uint64_t n : {100u, 300u, 1000u}) {
      array.applyPulses(
          Context{},
          TestWords::randomDirections(kCells, 1, static_cast<int64_t>(n - done), 77, done).view());
      done = n;
      const Sample sample = statistics(storedWeights(array));
      const double expected =
          target + (-0.3 - target) * std::pow(1.0 - strength / 2.0, static_cast<double>(n));
      EXPECT_NEAR(sample.mean, expected, 5.0 * sample.meanError())
          << params.model().name << " after " << n;
    }
  }
}

// Models that contain one another.

std::vector<float> afterRandomPulses(const DeviceParams &params) {
  PulsedDevice array(Context{}, params, 20, 70, kKey);
  array.applyPulses(Context{}, TestWords::random(20, 70, 50, 8, 21).view());
  return storedWeights(array);
}

TEST(DeviceModels, OneModelIsASpecialCaseOfAnother) {
  const std::vector<float> soft = afterRandomPulses(makeParams("SoftBounds"));
  EXPECT_TRUE(
      sameBits(afterRandomPulses(makeParams("LinearStep", {{"gamma_up", 1.0},
                                                           {"gamma_down", 1.0},
                                                           {"gamma_up_dtod", 0.0},
                                                           {"gamma_down_dtod", 0.0},
                                                           {"mean_bound_reference", false}})),
               soft));
  EXPECT_TRUE(
      sameBits(afterRandomPulses(makeParams("SoftBoundsReference", {{"mult_noise", true}})), soft));

  const std::vector<float> constant =
      afterRandomPulses(makeParams("ConstantStep", {{"pulse_noise", "sequential"}}));
  // These add up a pulse in another order: equal to rounding.
  for (const DeviceParams &params : {makeParams("PiecewiseStep"), makeParams("TableStep"),
                                     makeParams("TableStep", {{"table_spread", "absolute"}}),
                                     makeParams("PowStep", {{"pow_gamma", 0.0}})}) {
    const std::vector<float> weights = afterRandomPulses(params);
    for (size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(weights[i], constant[i], 2e-6);
  }

  const Value::List up{0.1, 0.5, 1.0, 0.3};
  const Value::List down{0.5, 2.0, 1.0, 1.0};
  const std::vector<float> piecewise = afterRandomPulses(
      makeParams("PiecewiseStep", {{"piecewise_up", up}, {"piecewise_down", down}}));
  for (const Value::List &nodes : {Value::List{}, Value::List{-0.6, -0.2, 0.2, 0.6}}) {
    const std::vector<float> table = afterRandomPulses(
        makeParams("TableStep", {{"table_w", nodes}, {"table_up", up}, {"table_down", down}}));
    for (size_t i = 0; i < table.size(); ++i) ASSERT_NEAR(table[i], piecewise[i], 4e-6);
  }
}

// The quantities that a model samples besides the common ones.

std::vector<float> plane(const PulsedDevice &device, const std::string &member) {
  const auto &names = device.params().model().cellMembers;
  const auto at = std::find(names.begin(), names.end(), member) - names.begin();
  return storedCells(device).at(static_cast<size_t>(at));
}

TEST(DeviceModels, SpreadsOfTheExtraQuantities) {
  // 1e5 cells each.
  const auto array = [](const std::string &model, const Value::Map &values) {
    return PulsedDevice(Context{}, makeParams(model, values), 250, 400, kKey);
  };
  const PulsedDevice linear = array("LinearStep", {});
  expectNormal(plane(linear, "gamma_up"), 0.0, 1.0);  // in units of gamma_up_dtod
  expectNormal(plane(linear, "gamma_down"), 0.0, 1.0);

  const PulsedDevice pow = array("PowStep", {{"pow_up_down_dtod", 0.05}, {"pow_up_down", 0.2}});
  const double spread = std::sqrt(0.1 * 0.1 + 0.05 * 0.05);
  expectNormal(plane(pow, "exponent_up"), 1.0, spread);
  expectNormal(plane(pow, "exponent_down"), 1.0,
               spread / 0.8);  // relative to the mean 1 - pow_up_down

  const PulsedDevice reference =
      array("SoftBoundsReference",
            {{"reference_std", 0.1}, {"slope_up_dtod", 0.1}, {"slope_down_dtod", 0.2}});
  expectNormal(plane(reference, "reference"), 0.0, 1.0);  // in units of reference_std
  expectNormal(plane(reference, "slope_up"), 1.0, 0.1);
  expectNormal(plane(reference, "slope_down"), 1.0, 0.2);
}

TEST(DeviceModels, LinearStepTakesGammaAbsoluteUnlessStepsMayGrow) {
  for (bool increasing : {false, true}) {
    const PulsedDevice array(
        Context{},
        makeParams("LinearStep", {{"gamma_up_dtod", 0.5}, {"allow_increasing", increasing}}), 30,
        30, kKey);
    PulsedDevice raised(Context{}, array.params(), 30, 30, kKey);
    fillWeights(raised, [](int64_t) { return 0.1f; });
    const std::vector<float> atZero = describe(array).stepUp;
    const std::vector<float> above = describe(raised).stepUp;
    const std::vector<float> weights = storedWeights(raised);
    int growing = 0;
    for (size_t i = 0; i < atZero.size(); ++i)
      growing += weights[i] == 0.1f && above[i] > atZero[i] * 1.0001f;
    EXPECT_EQ(growing > 0, increasing);
  }
}

TEST(DeviceModels, SoftBoundsReferenceCentresItsSymmetricPointAndResetsToIt) {
  const Value::Map values{{"subtract_symmetry_point", true},
                          {"reset_std", 0.0},
                          {"reset", 0.01},
                          {"up_down", 0.2},
                          {"up_down_dtod", 0.1},
                          {"slope_up_dtod", 0.1}};
  PulsedDevice array(Context{}, makeParams("SoftBoundsReference", values), 20, 30, kKey);
  const CellDescription cells = describe(array);
  const std::vector<float> start = storedWeights(array);
  const auto up = plane(array, "gain_up");
  const auto down = plane(array, "gain_down");
  const auto slopeUp = plane(array, "slope_up");
  const auto boundMax = plane(array, "bound_max");
  const auto boundMin = plane(array, "bound_min");
  array.resetColumns(Context{}, 0, 30, 1.0f, 0);
  const std::vector<float> reset = storedWeights(array);
  for (size_t i = 0; i < reset.size(); ++i) {
    const double a = up[i];
    const double b = 0.8 * static_cast<double>(down[i]);
    const double slopes =
        a * static_cast<double>(slopeUp[i]) / (0.6 * static_cast<double>(boundMax[i])) +
        b / (0.6 * static_cast<double>(boundMin[i]));
    const double symmetric = (a - b) / slopes;
    if (start[i] == 0.0f) {
      EXPECT_NEAR(cells.stepUp[i], -cells.stepDown[i], 2e-7) << i;
    }
    EXPECT_NEAR(reset[i],
                std::clamp(0.01 + symmetric, static_cast<double>(cells.wMin[i]),
                           static_cast<double>(cells.wMax[i])),
                1e-5)
        << i;
  }
}

TEST(DeviceModels, BoundsFollowTheAsymmetry) {
  const Value::Map values{{"adjust_bounds_with_up_down", true},
                          {"adjust_bounds_with_up_down_dev", 0.1},
                          {"up_down_dtod", 0.2},
                          {"w_max", 1.0},
                          {"w_min", -0.5}};
  const PulsedDevice plain(
      Context{},
      makeParams("ConstantStep", {{"up_down_dtod", 0.2}, {"w_max", 1.0}, {"w_min", -0.5}}), 20, 30,
      kKey);
  const PulsedDevice array(Context{}, makeParams("ConstantStep", values), 20, 30, kKey);
  const CellDescription before = describe(plain);
  const CellDescription after = describe(array);
  EXPECT_EQ(plane(plain, "gain_up"), plane(array, "gain_up"));
  const auto up = plane(array, "gain_up");
  const auto down = plane(array, "gain_down");
  for (size_t i = 0; i < before.wMax.size(); ++i) {
    const double range = static_cast<double>(before.wMax[i] - before.wMin[i]);
    const double share = static_cast<double>(up[i]) / static_cast<double>(up[i] + down[i]);
    const double wMin = -0.5 * range * (std::tanh((share - 0.5) / 0.1) + 1.0);
    EXPECT_NEAR(after.wMin[i], wMin, 0.01 * range);  // steps and bounds were rounded to 11 bits
    EXPECT_NEAR(after.wMax[i] - after.wMin[i], range, 2e-3 * range);
  }
}

}  // namespace
}  // namespace pulsora::testing
