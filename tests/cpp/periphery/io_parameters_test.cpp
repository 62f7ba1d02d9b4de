#include "periphery/io_parameters.h"

#include <gtest/gtest.h>
#include <string>

#include "core/check.h"

namespace pulsora {
namespace {

TEST(IOParameters, HasTheDefaultsOfTheField) {
  const IOParameters p;
  EXPECT_NO_THROW(checkParams(p, "forward"));
  EXPECT_NEAR(p.inputStep(), 1.0 / 63, 1e-9);
  EXPECT_NEAR(p.outputStep(), 24.0 / 510, 1e-8);
  EXPECT_EQ(p.doublings(), 4);  // 16 is the first power of two from 0.25 * 63 = 15.75 up
}

TEST(IOParameters, AResolutionAboveOneIsANumberOfSteps) {
  IOParameters steps, fraction;
  steps.inp_res = 10.0f;
  steps.out_res = 16.0f;
  fraction.inp_res = 0.1f;
  fraction.out_res = 1.0f / 16.0f;
  EXPECT_NEAR(steps.inputStep(), fraction.inputStep(), 1e-7);
  EXPECT_EQ(steps.outputStep(), fraction.outputStep());
  EXPECT_EQ(steps.doublings(), fraction.doublings());
}

TEST(IOParameters, DoublingsEndAtTheFactorOrTheResolution) {
  IOParameters p;
  p.inp_res = 0.0f;
  EXPECT_EQ(p.doublings(), 10);  // 1024 is the first power of two from 1000 up
  p.max_bm_factor = 16.0f;
  EXPECT_EQ(p.doublings(), 4);
  p.max_bm_factor = 1.0f;
  EXPECT_EQ(p.doublings(), 0);
  p.max_bm_factor = 1000.0f;
  p.inp_res = 0.5f;
  EXPECT_EQ(p.doublings(), 0);
}

template <class Change>
std::string refusal(const Change &change) {
  IOParameters p;
  change(p);
  try {
    checkParams(p, "tile.forward");
  } catch (const ConfigError &error) {
    p.is_perfect = true;
    EXPECT_NO_THROW(p.check(ParamsCheck{"tile.forward"})) << "a perfect read ignores the others";
    return error.what();
  }
  return "accepted";
}

TEST(IOParameters, ContradictionsAreRefusedByName) {
  using P = IOParameters;
  const auto expect = [](const std::string &text, const char *name) {
    EXPECT_EQ(text.find(std::string("tile.forward.") + name), 0U) << text;
  };
  expect(refusal([](P &p) { p.out_bound = 0.0f; }), "out_res");
  expect(refusal([](P &p) { p.inp_bound = 0.0f; }), "inp_res");
  expect(refusal([](P &p) { p.inp_res = 10.5f; }), "inp_res");
  expect(refusal([](P &p) { p.out_res = 1.5f; }), "out_res");
  expect(refusal([](P &p) { p.inp_res = 0.0f, p.inp_sto_round = true; }), "inp_sto_round");
  expect(refusal([](P &p) { p.out_res = 0.0f, p.out_sto_round = true; }), "out_sto_round");
  expect(refusal([](P &p) { p.noise_management = NoiseManagement::Constant; }), "noise_management");
  expect(refusal([](P &p) {
           p.noise_management = NoiseManagement::AbsMaxNPSum;
           p.out_res = p.out_bound = 0.0f;
         }),
         "noise_management");
  expect(refusal([](P &p) { p.w_noise = 0.1f; }), "w_noise");
  expect(refusal([](P &p) { p.w_read_asymmetry_dtod = 0.1f; }), "w_read_asymmetry_dtod");
  expect(refusal([](P &p) { p.out_nonlinearity = 1.0f, p.out_res = p.out_bound = 0.0f; }),
         "out_nonlinearity");
  expect(refusal([](P &p) { p.slope_calibration = 1.0f, p.out_res = p.out_bound = 0.0f; }),
         "slope_calibration");
  expect(refusal([](P &p) { p.mv_type = MvType::Ideal, p.ir_drop = 1.0f; }), "mv_type");
  const auto bits = [](P &p) {
    p.mv_type = MvType::BitSerial, p.bound_management = BoundManagement::None;
  };
  EXPECT_EQ(refusal(bits), "accepted");
  expect(refusal([&](P &p) { bits(p), p.bound_management = BoundManagement::Iterative; }),
         "bound_management");
  expect(refusal([&](P &p) { bits(p), p.inp_res = 0.0f; }), "mv_type");
  expect(refusal([&](P &p) { bits(p), p.inp_res = 127.0f; }), "mv_type");
  expect(refusal([&](P &p) { bits(p), p.inp_res = 1e5f; }), "mv_type");
  expect(refusal([](P &p) { p.input_slice_bits = 2; }), "input_slice_bits");
  const auto sums = [&](P &p) { bits(p), p.mv_type = MvType::BitSerialAnalogSum; };
  EXPECT_EQ(refusal([&](P &p) { sums(p), p.input_slice_bits = 2; }), "accepted");
  expect(refusal([&](P &p) { sums(p), p.bound_management = BoundManagement::Iterative; }),
         "bound_management");
  expect(refusal([&](P &p) { sums(p), p.inp_res = 127.0f; }), "mv_type");
  EXPECT_EQ(refusal([](P &p) { p.inp_res = p.inp_bound = p.out_res = p.out_bound = 0.0f; }),
            "accepted");
}

TEST(IOParameters, RangesAreChecked) {
  const auto read = [](const char *name, Value value) {
    return readParams<IOParameters>(Value(Value::Map{{name, std::move(value)}}), "forward");
  };
  EXPECT_THROW(read("out_noise", Value(-0.1)), ConfigError);
  EXPECT_THROW(read("nm_decay", Value(1.5)), ConfigError);
  EXPECT_THROW(read("input_slice_bits", Value(0)), ConfigError);
  EXPECT_THROW(read("input_slice_bits", Value(9)), ConfigError);
  EXPECT_THROW(read("v_offset_w_min", Value(0.5)), ConfigError);
  EXPECT_THROW(read("max_bm_factor", Value(0.5)), ConfigError);
  EXPECT_THROW(read("noise_management", Value("absmax")), ConfigError);
  EXPECT_THROW(read("out_bounds", Value(1.0)), ConfigError);
  EXPECT_EQ(read("noise_management", Value("abs_max_np_sum")).noise_management,
            NoiseManagement::AbsMaxNPSum);
}

}  // namespace
}  // namespace pulsora
