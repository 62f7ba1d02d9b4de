// Transfers by program and verify, and what of them stays in the adapter.

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "devices/exp_step.h"
#include "lrtt/lrtt_test_util.h"
#include "transfer/program_targets.h"

namespace pulsora {
namespace {

LrttRig rigOf(const DeviceParams &visible, int64_t d = 40, int64_t x = 56, int rank = 4) {
  LrttRig rig(d, x, rank);
  rig.params.visible = visible;
  rig.params.transfer_mode = TransferMode::WriteVerify;
  rig.params.transfer_lr = 1.0f;
  rig.params.reinit = Reinit::KeepB;
  rig.params.keep_rest = false;
  return rig;
}

double product(const Mat &a, const Mat &b, int64_t i, int64_t j) {
  double sum = 0.0;
  for (int64_t k = 0; k < a.cols; ++k)
    sum += static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
  return sum;
}

// Without noise, and with equal steps, one round suffices: each cell outside the tolerance gets
// round(|T| / step) pulses. Lines are those of the shorter side, the rows.
TEST(WriteVerify, EqualStepsNeedOneRound) {
  constexpr double kStep = 0.01;
  constexpr double kTolerance = 0.02;
  LrttRig rig = rigOf(idealCells(static_cast<float>(kStep)));
  rig.params.transfer_tolerance = static_cast<float>(kTolerance);
  rig.build();
  const Mat a = randomMat(40, 4, 0.2f, 2), b = randomMat(4, 56, 0.2f, 3);
  rig.setFactors(a, b);
  rig.device->adapter()->transfer(rig.context);
  const Mat w = rig.w();
  double pulses = 0.0, slots = 0.0, reads = 0.0, square = 0.0;
  for (int64_t i = 0; i < 40; ++i) {
    double longest = 0.0;
    for (int64_t j = 0; j < 56; ++j) {
      const double t = product(a, b, i, j);
      const double n = std::fabs(t) > kTolerance ? std::round(std::fabs(t) / kStep) : 0.0;
      ASSERT_NEAR(w(i, j), std::copysign(n * kStep, t), 1e-6);
      pulses += n;
      reads += n > 0.0 ? 2.0 : 1.0;
      longest = std::max(longest, n);
      square += std::pow(t - std::copysign(n * kStep, t), 2.0);
    }
    slots += longest;
  }
  const TransferStats stats = rig.latest();
  EXPECT_EQ(static_cast<double>(stats.pulses), pulses);
  EXPECT_EQ(static_cast<double>(stats.slots), slots);
  EXPECT_EQ(static_cast<double>(stats.reads), reads);
  EXPECT_EQ(stats.outside, 0u);
  EXPECT_NEAR(stats.error(), std::sqrt(square / (40.0 * 56.0)), 1e-4);
}

// Cells with noisy, asymmetric steps and write noise of 2.5 times the tolerance end within it.
TEST(WriteVerify, NoisyCellsEndWithinTheTolerance) {
  ExpStep::Params cell;
  cell.dw_min = 0.00135f;
  cell.dw_min_std = 5.0f;
  cell.w_max = 1.0f;
  cell.w_min = -1.0f;
  cell.up_down = 0.26f;
  cell.a_up = -1.18445f;
  cell.a_down = -0.081404f;
  cell.gamma_up = cell.gamma_down = 5.0f;
  cell.a = cell.b = -0.5f;
  cell.write_noise_std = 75.0f;
  LrttRig rig = rigOf(cell, 64, 64);
  rig.params.transfer_tolerance = 0.04f;
  rig.params.transfer_rounds = 40;
  rig.build();
  const Mat a = randomMat(64, 4, 0.25f, 2), b = randomMat(4, 64, 0.25f, 3);
  const Mat before = rig.w();
  rig.setFactors(a, b);
  rig.device->adapter()->transfer(rig.context);
  const Mat after = rig.w();
  int outside = 0, far = 0, kept = 0;
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 64; ++j) {
      const double t = product(a, b, i, j);
      const double error = std::fabs(t + static_cast<double>(before(i, j) - after(i, j)));
      outside += error > 0.04;
      far += error > 0.16;
      if (std::fabs(t) < 0.0399) {  // inside before the first pulse, so it has its old noise
        ++kept;
        ASSERT_EQ(after(i, j), before(i, j));
      }
    }
  }
  EXPECT_GT(kept, 500);
  EXPECT_LE(outside, 24);  // 0.6 %: targets near or beyond bounds, accepted at the end
  EXPECT_LE(far, 2);
  EXPECT_EQ(rig.latest().outside, static_cast<uint64_t>(outside));
}

// What no cell takes, because it is less than the tolerance, stays: A B has the same value.
TEST(WriteVerify, TheRestStaysInTheAdapter) {
  for (const bool swap : {false, true}) {
    LrttRig rig = rigOf(idealCells(1e-4f));
    rig.params.swap_xd = swap;
    rig.params.keep_rest = true;
    rig.params.transfer_tolerance = 10.0f;
    rig.params.reinit = Reinit::Decay;
    rig.build();
    const Mat a = swap ? randomMat(56, 4, 0.2f, 2) : randomMat(40, 4, 0.2f, 2);
    const Mat b = swap ? randomMat(4, 40, 0.2f, 3) : randomMat(4, 56, 0.2f, 3);
    rig.setFactors(a, b);
    rig.device->adapter()->transfer(rig.context);
    EXPECT_EQ(rig.latest().pulses, 0u);
    const Mat newA(rig.device->factors().a().weights()), newB(rig.device->factors().b().weights());
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < b.cols; ++j)
        ASSERT_NEAR(product(newA, newB, i, j), product(a, b, i, j), 2e-4);  // kRaise is 1e-4
    }
  }
}

// A GPU makes the revision of a transfer even if nothing is held, and it has to change nothing.
TEST(WriteVerify, ARevisionWithoutHeldLinesKeepsTheWeights) {
  const float weights[2] = {0.25f, -0.5f};
  const uint8_t lines[1] = {0};
  for (const uint32_t any : {0U, 1U}) {
    float missing[2] = {0.125f, 0.0f};
    const HeldLines held{{}, 1.0f, lines, false, &any};
    const RevisedTargets targets{rowMajor<const float>(weights, 1, 2), held, missing};
    for (int64_t i = 0; i < 2; ++i) targets(i);
    EXPECT_EQ(missing[0], any == 0 ? 0.25f : 0.375f);
    EXPECT_EQ(missing[1], -0.5f);
  }
}

TEST(WriteVerify, AMergeLeavesNothingInTheAdapter) {
  for (const Reinit reinit : {Reinit::Decay, Reinit::None, Reinit::Kaiming}) {
    LrttRig rig = rigOf(idealCells(1e-3f));
    rig.params.keep_rest = true;
    rig.params.reinit = reinit;
    rig.build();
    const Mat a = randomMat(40, 4, 0.2f, 2), b = randomMat(4, 56, 0.2f, 3);
    rig.setFactors(a, b);
    rig.device->adapter()->merge(rig.context, {});
    for (const float v : Mat(rig.device->factors().a().weights()).v) ASSERT_EQ(v, 0.0f);
    const Mat w = rig.w();
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t j = 0; j < 56; ++j) ASSERT_NEAR(w(i, j), product(a, b, i, j), 1.1e-3);
    }
  }
}

TEST(WriteVerify, AMergeWritesTheWeightsThatItIsGiven) {
  LrttRig rig = rigOf(idealCells(1e-3f));
  rig.build();
  rig.setFactors(randomMat(40, 4, 0.2f, 2), randomMat(4, 56, 0.2f, 3));
  const Mat wanted = randomMat(40, 56, 0.2f, 4);
  rig.device->adapter()->merge(rig.context, wanted.view());
  for (const float v : Mat(rig.device->factors().a().weights()).v) ASSERT_EQ(v, 0.0f);
  const Mat w = rig.w();
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t j = 0; j < 56; ++j) ASSERT_NEAR(w(i, j), wanted(i, j), 1.1e-3);
  }
  EXPECT_EQ(rig.latest().transfers, 1U);

  LrttRig trains(40, 56, 4);
  trains.params.transfer_mode = TransferMode::Verified;
  trains.build();
  EXPECT_THROW(trains.device->adapter()->merge(trains.context, wanted.view()), ConfigError);
  EXPECT_EQ(trains.latest().transfers, 0U);
}

TEST(WriteVerify, SettingsThatCannotWorkAreRefused) {
  const auto refusal = [](auto change) {
    LrttRig rig = rigOf(idealCells(0.01f));
    change(rig);
    try {
      rig.build();
    } catch (const ConfigError &error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal([](LrttRig &r) { r.params.transfer_tolerance = 0.0051f; }), "");
  EXPECT_NE(refusal([](LrttRig &r) {
              r.params.transfer_tolerance = 0.0025f;
            }).find("so that they hold no value to less than 0.00499"),
            std::string::npos);
  EXPECT_NE(refusal([](LrttRig &r) {
              r.params.transfer_tolerance = 0.0f;
            }).find("lrtt.transfer_tolerance is 0; it must be > 0"),
            std::string::npos);
  EXPECT_NE(refusal([](LrttRig &r) {
              r.params.transfer_mode = TransferMode::Exact;
              r.params.transfer_tolerance = 0.1f;
            }).find("lrtt.transfer_mode = 'exact' does not use"),
            std::string::npos);
  EXPECT_NE(refusal([](LrttRig &r) { r.update.pulse_type = PulseType::NoneWithDevice; })
                .find("lrtt.transfer_mode is 'write_verify' and update.pulse_type is "
                      "'none_with_device', which sends no pulses; set transfer_mode to 'auto'"),
            std::string::npos);
  EXPECT_NE(refusal([](LrttRig &r) {
              r.params.transfer_mode = TransferMode::Verified;
              r.update.pulse_type = PulseType::None;
            }).find("lrtt.transfer_mode is 'verified' and update.pulse_type is 'none'"),
            std::string::npos);
  EXPECT_NE(refusal([](LrttRig &r) {
              r.params.transfer_mode = TransferMode::Auto;
              r.params.transfer_tolerance = 0.1f;
              r.update.pulse_type = PulseType::None;
            }).find("does not use (pulse_type sends no pulses); set transfer_tolerance to 'auto'"),
            std::string::npos);
}

// By default cells are verified where pulses are sent; else A B is added in floating point.
TEST(WriteVerify, TheAutomaticModeFollowsThePulseType) {
  const auto weights = [](TransferMode mode, PulseType pulses) {
    LrttRig rig = rigOf(idealCells(1e-3f));
    rig.params.transfer_mode = mode;
    rig.update.pulse_type = pulses;
    rig.build();
    rig.setFactors(randomMat(40, 4, 0.2f, 2), randomMat(4, 56, 0.2f, 3));
    rig.device->adapter()->transfer(rig.context);
    return rig.w();
  };
  EXPECT_EQ(LRTTParams().transfer_mode, TransferMode::Auto);
  const PulseType trains = PulseType::StochasticCompressed;
  EXPECT_TRUE(
      sameBits(weights(TransferMode::Auto, trains), weights(TransferMode::WriteVerify, trains)));
  EXPECT_FALSE(
      sameBits(weights(TransferMode::Auto, trains), weights(TransferMode::Lossless, trains)));
  for (const PulseType digital : {PulseType::None, PulseType::NoneWithDevice}) {
    EXPECT_TRUE(
        sameBits(weights(TransferMode::Auto, digital), weights(TransferMode::Lossless, digital)));
  }
}

// Cells of A hold their components times signs, also where pulses write the rest.
TEST(WriteVerify, TheRestHasTheSignsOfAChopper) {
  const auto rest = [](Chopper chopper, ReinitWrite write, Mat &signs) {
    LrttRig rig = rigOf(idealCells(1e-4f));
    rig.params.fast = idealCells(1e-4f);
    rig.params.keep_rest = true;
    rig.params.transfer_tolerance = 10.0f;
    rig.params.chopper = chopper;
    rig.params.reinit_write = write;
    rig.build();
    rig.setFactors(randomMat(40, 4, 0.2f, 2), randomMat(4, 56, 0.2f, 3));
    for (int i = 0; i < 2; ++i) rig.device->adapter()->transfer(rig.context);
    const float *held = rig.device->factors().a().columnSigns();
    if (held) signs = Mat(rowMajor<const float>(held, 1, 4));
    return Mat(rig.device->factors().a().weights());
  };
  for (const ReinitWrite write : {ReinitWrite::Direct, ReinitWrite::Pulsed}) {
    Mat signs(1, 4);
    const Mat plain = rest(Chopper::None, write, signs);
    const Mat chopped = rest(Chopper::Reinit, write, signs);
    EXPECT_LT(*std::min_element(signs.v.begin(), signs.v.end()), 0.0f);
    for (size_t i = 0; i < plain.v.size(); ++i) ASSERT_NEAR(chopped.v[i], plain.v[i], 3e-4);
  }
}

}  // namespace
}  // namespace pulsora
