#include <cmath>
#include <gtest/gtest.h>
#include <string>

#include "lrtt/lrtt_test_util.h"

// A and B under ab_update = "accumulated": whole pulses for the sum of gradients.

namespace pulsora {
namespace {

constexpr int64_t kOut = 7, kIn = 11, kRank = 3;
constexpr float kStep = 1e-3f;

LrttRig accumulating() {
  LrttRig rig(kOut, kIn, kRank);
  rig.params.ab_update = FactorUpdate::Accumulated;
  rig.params.projection = Projection::Exact;
  rig.params.fast = idealCells(kStep);
  return rig;
}

// Of the largest difference of elements.
double distance(const Mat &a, const Mat &b) {
  double largest = 0.0;
  for (size_t i = 0; i < a.v.size(); ++i)
    largest = std::max(largest, std::fabs(double(a.v[i]) - double(b.v[i])));
  return largest;
}

// The same device with an outer product in floating point instead of pulses.
LrttRig exact() {
  LrttRig rig = accumulating();
  rig.params.ab_update = FactorUpdate::Sample;
  rig.update.pulse_type = PulseType::None;
  return rig;
}

// With a learning rate for A alone, projections do not depend on A, and the path is known: at the
// end of each mini-batch A is within one step of the path, and in whole steps.
TEST(LrttAccumulated, WholePulsesFollowTheSumOfTheGradients) {
  LrttRig rig = accumulating(), plain = exact();
  rig.params.b_lr = plain.params.b_lr = 0.0f;
  rig.build();
  plain.build();
  for (uint64_t n = 0; n < 30; ++n) {
    const Mat in = randomMat(5, kIn, 1.0f, 10 + n), grad = randomMat(5, kOut, 0.1f, 50 + n);
    const Mat before = rig.a();
    rig.learn(in, grad, 0.002f);
    EXPECT_TRUE(sameBits(rig.a(), before));  // nothing is sent before the mini-batch ends
    plain.learn(in, grad, 0.002f);
    rig.endMiniBatch();
    plain.endMiniBatch();
    ASSERT_LE(distance(rig.a(), plain.a()), 1.001 * double(kStep)) << n;
    for (const float a : rig.a().v) {
      const double pulses = double(a) / double(kStep);
      ASSERT_NEAR(pulses, std::round(pulses), 1e-2);
    }
  }
  EXPECT_GT(distance(rig.a(), Mat(kOut, kRank)), 5.0 * double(kStep));
}

TEST(LrttAccumulated, BothFactorsLearn) {
  LrttRig rig = accumulating(), plain = exact();
  rig.params.fast = idealCells(1e-6f);
  rig.update.desired_bl = 65536;
  rig.build();
  plain.build();
  for (uint64_t n = 0; n < 5; ++n) {
    const Mat in = randomMat(5, kIn, 1.0f, 10 + n), grad = randomMat(5, kOut, 0.1f, 50 + n);
    for (LrttRig *each : {&rig, &plain}) {
      each->learn(in, grad, 0.05f);
      each->endMiniBatch();
    }
  }
  EXPECT_GT(distance(rig.b(), accumulating().build().b()), 1e-3);
  EXPECT_LE(distance(rig.a(), plain.a()), 2e-5);
  EXPECT_LE(distance(rig.b(), plain.b()), 2e-5);
}

TEST(LrttAccumulated, GradientsThatCancelSendNothing) {
  LrttRig rig = accumulating();
  rig.build();
  Mat in = randomMat(2, kIn, 1.0f, 1), grad = randomMat(2, kOut, 1.0f, 2);
  for (int64_t j = 0; j < kIn; ++j) in(1, j) = in(0, j);
  for (int64_t i = 0; i < kOut; ++i) grad(1, i) = -grad(0, i);
  rig.learn(in, grad, 0.1f);
  rig.endMiniBatch();
  EXPECT_EQ(rig.device->factors().a().pulseCount(rig.context), 0u);
  EXPECT_EQ(rig.device->factors().b().pulseCount(rig.context), 0u);
}

// Pulses beyond desired_bl are sent in later mini-batches, even without a gradient.
TEST(LrttAccumulated, NothingIsLostToShortTrains) {
  LrttRig rig = accumulating(), plain = exact();
  rig.params.b_lr = plain.params.b_lr = 0.0f;
  rig.update.desired_bl = 2;
  rig.build();
  plain.build();
  const Mat in = randomMat(5, kIn, 1.0f, 1), grad = randomMat(5, kOut, 0.1f, 2);
  rig.learn(in, grad, 0.01f);
  plain.learn(in, grad, 0.01f);
  rig.endMiniBatch();
  EXPECT_NEAR(distance(rig.a(), Mat(kOut, kRank)), 2.0 * double(kStep), 1e-6);
  EXPECT_GT(distance(rig.a(), plain.a()), 2.0 * double(kStep));
  for (int n = 0; n < 20; ++n) rig.endMiniBatch();
  EXPECT_LE(distance(rig.a(), plain.a()), 1.001 * double(kStep));
}

// Soft bounds pull a cell to its symmetric point by a share of each pulse, whatever its sign. Under
// a gradient that is mostly noise, pulse trains for each sample pull A there; whole pulses for the
// sum are few.
TEST(LrttAccumulated, AsymmetricCellsKeepWhatTheyHold) {
  double kept[2] = {};
  uint64_t pulses[2] = {};
  for (const bool accumulated : {false, true}) {
    LrttRig rig = accumulating();
    SoftBounds::Params cells;
    cells.dw_min = 0.002f;
    rig.params.fast = cells;
    rig.params.b_lr = 0.0f;
    if (!accumulated) rig.params.ab_update = FactorUpdate::Sample;
    rig.build();
    Mat a(kOut, kRank, 0.3f);
    rig.setFactors(a, rig.b());
    for (uint64_t n = 0; n < 40; ++n) {
      rig.learn(randomMat(64, kIn, 1.0f, 100 + n), randomMat(64, kOut, 1.0f, 200 + n), 5e-4f);
      rig.endMiniBatch();
    }
    for (const float value : rig.a().v) kept[accumulated] += double(value) / double(a.v.size());
    pulses[accumulated] = rig.device->factors().a().pulseCount(rig.context);
  }
  EXPECT_LT(kept[false], 0.15);
  EXPECT_GT(kept[true], 0.22);
  EXPECT_LT(4 * pulses[true], pulses[false]);
}

LrttRig noisy(bool byDecay) {
  LrttRig rig = accumulating();
  SoftBounds::Params cells = noisyCells(kStep);
  cells.write_noise_std = 2.0f;
  rig.params.fast = cells;
  rig.params.projection = Projection::Analog;
  rig.params.transfer_every = 12;  // samples: within the third mini-batch of 5
  rig.params.reinit = byDecay ? Reinit::Decay : Reinit::Kaiming;
  rig.forwardIo = rig.backwardIo = IOParameters{};
  return rig;
}

// Mini-batches of 5 samples, cut in one place or not at all.
void run(LrttRig &rig, uint64_t first, int batches, int64_t cut) {
  for (uint64_t n = first; n < first + uint64_t(batches); ++n) {
    const Mat in = randomMat(5, kIn, 1.0f, 10 + n), grad = randomMat(5, kOut, 0.3f, 50 + n);
    if (cut > 0) rig.learn(in.rowsFrom(0, cut), grad.rowsFrom(0, cut), 0.02f);
    rig.learn(in.rowsFrom(cut, 5 - cut), grad.rowsFrom(cut, 5 - cut), 0.02f);
    rig.endMiniBatch();
  }
}

TEST(LrttAccumulated, Property37_CutsOfABatchLeaveTheBits) {
  for (const bool byDecay : {true, false}) {
    LrttRig whole = noisy(byDecay), parts = noisy(byDecay);
    run(whole.build(), 0, 6, 0);
    run(parts.build(), 0, 6, 3);
    EXPECT_EQ(whole.transfers(), 2u);
    EXPECT_TRUE(sameBits(whole.a(), parts.a()));
    EXPECT_TRUE(sameBits(whole.b(), parts.b()));
    EXPECT_TRUE(sameBits(whole.w(), parts.w()));
  }
}

TEST(LrttAccumulated, Property38_WhatIsOwedIsSaved) {
  LrttRig rig = noisy(true), other = noisy(true);
  rig.build();
  other.build();
  run(rig, 0, 1, 0);
  const Mat in = randomMat(5, kIn, 1.0f, 1), grad = randomMat(5, kOut, 0.3f, 2);
  rig.learn(in.rowsFrom(0, 2), grad.rowsFrom(0, 2), 0.02f);  // within a mini-batch
  State state;
  rig.device->saveTo(rig.context, state, "");
  other.device->loadFrom(other.context, state, "");
  other.counters = rig.counters;
  for (LrttRig *each : {&rig, &other}) {
    each->learn(in.rowsFrom(2, 3), grad.rowsFrom(2, 3), 0.02f);
    each->endMiniBatch();
    run(*each, 2, 3, 0);
  }
  EXPECT_TRUE(sameBits(rig.a(), other.a()));
  EXPECT_TRUE(sameBits(rig.b(), other.b()));
  EXPECT_TRUE(sameBits(rig.w(), other.w()));
}

// Updates accumulated for previous directions of B are not sent; a B that only shrinks keeps its
// directions.
TEST(LrttAccumulated, NewDirectionsOweNothing) {
  for (const Reinit reinit : {Reinit::Kaiming, Reinit::KeepB}) {
    LrttRig rig = accumulating();
    rig.params.b_lr = 0.0f;
    rig.params.reinit = reinit;
    rig.update.desired_bl = 1;
    rig.build();
    rig.learn(randomMat(5, kIn, 1.0f, 1), randomMat(5, kOut, 0.1f, 2), 0.01f);
    rig.endMiniBatch();
    rig.device->adapter()->transfer(rig.context);
    rig.endMiniBatch();
    EXPECT_EQ(distance(rig.a(), Mat(kOut, kRank)) == 0.0, reinit == Reinit::Kaiming);
  }
}

TEST(LrttAccumulated, RefusesUpdatesWithoutPulses) {
  LrttRig rig = accumulating();
  rig.update.pulse_type = PulseType::None;
  try {
    rig.build();
    FAIL();
  } catch (const ConfigError &error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("lrtt.ab_update is 'accumulated'"), std::string::npos);
    EXPECT_NE(text.find("update.pulse_type is 'none'"), std::string::npos);
  }
}

TEST(LrttAccumulated, ExplainCountsPulsesOfAMiniBatch) {
  LrttRig rig = accumulating();
  rig.update.desired_bl = 3;
  rig.build();
  rig.setFactors(randomMat(kOut, kRank, 0.5f, 3), randomMat(kRank, kIn, 0.5f, 4));
  const Mat in = randomMat(5, kIn, 1.0f, 1), grad = randomMat(5, kOut, 0.1f, 2);
  const Value::Map told = rig.device->explain(rig.context, in.view(), grad.view(), 0.05f);
  const double largest = *told.at("a").map()->at("largest_pulses").real();
  EXPECT_GT(largest, 3.0);
  EXPECT_GT(*told.at("a").map()->at("mean_pulses").real(), 0.0);
  EXPECT_EQ(told.at("warnings").list()->at(0).text()->find("update of "), 0u);
}

}  // namespace
}  // namespace pulsora
