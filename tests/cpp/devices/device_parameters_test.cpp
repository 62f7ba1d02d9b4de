// Refused parameters of device models, memory of their cells, and reading of tables.

#include "devices/piecewise_step.h"
#include "devices/table_step.h"
#include "util/device_test_util.h"

namespace pulsora::testing {
namespace {

TEST(DeviceModels, ContradictionsAreRefusedByName) {
  struct Bad {
    const char *model;
    Value::Map values;
    const char *says;
  };
  const Bad cases[] = {
      {"LinearStep", {{"gamma_up", -0.2}}, "device.gamma_up is -0.2"},
      {"LinearStep", {{"gamma_down", 1.5}}, "device.gamma_down is 1.5"},
      {"LinearStep", {{"reverse_up", true}, {"mult_noise", false}}, "device.mult_noise is False"},
      {"ExpStep", {{"gamma_up", 500.0}}, "device.gamma_up is 500"},
      {"ExpStep", {{"a_up", 100.0}, {"a_down", 100.0}}, "device.a_up is 100"},
      {"PowStep", {{"pow_gamma", -1.0}}, "device.pow_gamma is -1"},
      {"PiecewiseStep", {{"piecewise_up", Value::List{}}}, "device.piecewise_up is empty"},
      {"PiecewiseStep",
       {{"piecewise_down", Value::List{1.0, -0.5}}},
       "device.piecewise_down[1] is -0.5"},
      {"PiecewiseStep",
       {{"piecewise_up", Value::List{1.0, 0.0, 1.0}}, {"piecewise_down", Value::List{0.0}}},
       "both 0 at weight 0"},
      {"PiecewiseStep", {{"piecewise_up", Value::List(65, Value(1.0))}}, "at most 64"},
      {"TableStep", {{"table_w", Value::List{0.1}}}, "device.table_w has 1 number"},
      {"TableStep", {{"table_w", Value::List{-0.5, 0.75}}}, "device.table_w[1] is 0.75, outside"},
      {"TableStep", {{"table_w", Value::List{0.5, 0.25}}}, "device.table_w[1] is 0.25; it must be"},
      {"TableStep",
       {{"table_w", Value::List{0.0, 0.1, 0.2}}, {"table_up", Value::List{1.0, 1.0}}},
       "device.table_up has 2 numbers; give 1, or as many as table_w, which has 3"},
      {"TableStep",
       {{"table_std_up", Value::List{1.0, 2.0, 3.0}}, {"table_down", Value::List{1.0, 1.0}}},
       "device.table_down has 2 numbers; give 1, or as many as the longest table, which has 3"},
      {"TableStep", {{"table_up", Value::List{}}}, "device.table_up has 0 numbers"},
      {"TableStep",
       {{"table_std_down", Value::List{1.0, -0.5}}},
       "device.table_std_down[1] is -0.5"},
      {"TableStep",
       {{"table_up", Value::List{1.0, 0.0, 1.0}}, {"table_down", Value::List{0.0}}},
       "both 0 at weight 0"},
      {"TableStep", {{"table_curve", "spline"}}, "device.table_curve"},
      {"SoftBoundsReference", {{"reference_std", -0.1}}, "device.reference_std is -0.1"},
      {"SoftBounds", {{"w_max", 0.0}, {"w_min", 0.0}}, "device.w_max and device.w_min are both 0"},
      {"ConstantStep",
       {{"adjust_bounds_with_up_down", true}},
       "device.adjust_bounds_with_up_down_dev is 0"},
      {"ExpStep", {{"w_max", 0x1p-60}}, "device.w_max is 8.67361738e-19; it must be 0 or >= 1e-15"},
      {"SoftBounds",
       {{"w_max", 0x1p-40}, {"w_min", 0.0}, {"dw_min", 1e15}},
       "device.dw_min is 9.99999987e+14 and device.up_down is 0; a pulse is then more than"},
      {"PowStep",
       {{"w_min", -0x1p-60}, {"w_max", 0.0}},
       "device.w_min is -8.67361738e-19; it must be 0 or <= -1e-15"},
      {"PowStep",
       {{"dw_min_dtod_log_normal", true}, {"dw_min_dtod", 1e7}},
       "device.dw_min_dtod is 10000000 with dw_min_dtod_log_normal"},
      {"ConstantStep", {{"gamma_up", 0.1}}, "device.gamma_up is not a parameter of ConstantStep"},
  };
  for (const Bad &bad : cases) {
    try {
      makeParams(bad.model, bad.values);
      ADD_FAILURE() << bad.model << " was accepted; expected: " << bad.says;
    } catch (const ConfigError &error) {
      EXPECT_NE(std::string(error.what()).find(bad.says), std::string::npos) << error.what();
    }
  }
}

TEST(DeviceModels, BytesPerWeight) {
  const std::vector<std::pair<const char *, size_t>> expected{
      {"ConstantStep", 12}, {"LinearStep", 16}, {"SoftBounds", 12},    {"SoftBoundsReference", 18},
      {"ExpStep", 12},      {"PowStep", 16},    {"PiecewiseStep", 12}, {"TableStep", 12}};
  for (const auto &[model, bytes] : expected) {
    EXPECT_EQ(PulsedDevice(Context{}, makeParams(model), 10, 10, RandomKey{1, 2}).memoryBytes(),
              100 * bytes)
        << model;
  }
}

TEST(PiecewiseStep, APlaceThatIsNoNumberIsTheFirstNode) {
  FloatList nodes{3, {1.0f, 2.0f, 4.0f}};
  EXPECT_EQ(PiecewiseStep::interpolate(nodes, kNaN), 1.0f);
  EXPECT_EQ(PiecewiseStep::interpolate(nodes, -kInfinity), 1.0f);
  EXPECT_EQ(PiecewiseStep::interpolate(nodes, kInfinity), 4.0f);
  EXPECT_EQ(PiecewiseStep::interpolate(nodes, 0.75f), 3.0f);
  // All neighbours of a list that is full are in it.
  nodes.count = FloatList::kCapacity;
  EXPECT_EQ(PiecewiseStep::interpolate(nodes, kNaN), 1.0f);
  EXPECT_EQ(PiecewiseStep::interpolate(nodes, 2.0f), nodes.values[FloatList::kCapacity - 1]);
}

TEST(TableStep, EveryPlaceHasASpotWithinTheTable) {
  TableStep::Params p;
  p.w_min = -1.0f;
  p.w_max = 1.0f;
  for (const int count : {2, 3, 5, FloatList::kCapacity}) {
    for (const bool given : {false, true}) {
      p.table_up.count = count;
      p.table_w.count = given ? count : 0;
      for (int i = 0; i < count; ++i) {
        const float share = static_cast<float>(i) / static_cast<float>(count - 1);
        p.table_w.values[i] = -0.5f + share * share;  // uneven, within the bounds
        p.table_up.values[i] = static_cast<float>(i + 1);
      }
      const auto at = [&](float place) {
        return TableStep::read(p.table_up, TableStep::spot(place, p), TableCurve::Cubic);
      };
      EXPECT_EQ(at(kNaN), 1.0f);
      EXPECT_EQ(at(-kInfinity), 1.0f);
      EXPECT_NEAR(at(kInfinity), static_cast<float>(count), 1e-4f);
      for (int i = 0; i < count; ++i) {
        const float place = given ? 0.5f * (p.table_w.values[i] + 1.0f)
                                  : static_cast<float>(i) / static_cast<float>(count - 1);
        EXPECT_NEAR(at(place), static_cast<float>(i + 1), 2e-3f) << count << ' ' << i;
      }
    }
  }
}

TEST(TableStep, TheCubicNeverLeavesItsNeighbours) {
  TableStep::Params p;
  p.table_up = {6, {0.0f, 0.0f, 1.0f, 0.9f, 0.0f, 5.0f}};
  for (int i = 0; i <= 5000; ++i) {
    const TableStep::Spot s = TableStep::spot(static_cast<float>(i) / 5000.0f, p);
    const float value = TableStep::read(p.table_up, s, TableCurve::Cubic);
    const float a = p.table_up.values[s.node];
    const float b = p.table_up.values[s.node + 1];
    ASSERT_GE(value, std::min(a, b) - 1e-6f) << i;
    ASSERT_LE(value, std::max(a, b) + 2e-6f) << i;
  }
}

}  // namespace
}  // namespace pulsora::testing
