#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "array/array_keys.h"
#include "lrtt/lrtt_test_util.h"
#include "transfer/line_read.h"
#include "transfer/pulse_transfer.h"
#include "transfer/pulse_writer.h"
#include "transfer/transfer_schedule.h"

// The parts of a transfer by themselves, without an adapter.

namespace pulsora {
namespace {

constexpr TileKeys kKeys{5, 0};

PulsedDevice arrayOf(const DeviceParams &device, int64_t rows, int64_t cols, uint32_t slot = 0) {
  return PulsedDevice({}, device, rows, cols, kKeys.of(slot, Role::Cells));
}

TEST(TransferSchedule, Property26_DueAfterEachPeriodWhateverTheSplit) {
  for (const int64_t period : {1, 3, 7, 100}) {
    for (const int64_t batch : {1, 2, 5, 64}) {
      TransferSchedule schedule(period, TransferSchedule::Unit::Samples);
      int64_t due = 0;
      int64_t seen = 0;
      for (int n = 0; n < 40; ++n) {
        for (int64_t left = batch; left > 0;) {
          const int64_t count = schedule.next(left);
          ASSERT_GE(count, 1);
          ASSERT_LE(count, left);
          left -= count;
          seen += count;
          due += schedule.passed(TransferSchedule::Unit::Samples, count) ? 1 : 0;
          ASSERT_FALSE(schedule.passed(TransferSchedule::Unit::MiniBatches, 1));
        }
        ASSERT_EQ(due, seen / period) << "period " << period << ", batches of " << batch;
        ASSERT_EQ(schedule.since(), seen % period);
      }
    }
  }
  TransferSchedule never(0, TransferSchedule::Unit::Samples);
  EXPECT_EQ(never.next(1000), 1000);
  EXPECT_FALSE(never.passed(TransferSchedule::Unit::Samples, 1000));
}

TEST(TransferSchedule, RefusesACountThatItCannotHave) {
  TransferSchedule schedule(5, TransferSchedule::Unit::MiniBatches);
  schedule.passed(TransferSchedule::Unit::MiniBatches, 3);
  State state;
  schedule.saveTo(state, "since");
  TransferSchedule other(5, TransferSchedule::Unit::MiniBatches);
  other.loadFrom(state, "since");
  EXPECT_EQ(other.since(), 3);
  TransferSchedule shorter(3, TransferSchedule::Unit::MiniBatches);
  EXPECT_THROW(shorter.loadFrom(state, "since"), StateError);
  EXPECT_EQ(shorter.since(), 0);
}

TEST(LineRead, GivesTheLinesOfTheArrayAndNumbersTheirReads) {
  const Mat w = randomMat(4, 6, 0.3f, 1);
  LineRead exact({}, perfectIo(), Pass::Forward, 6, 4, kKeys.of(1, Role::Transfer));
  const Mat lines(exact.run({}, w.view(), 0));
  for (int64_t j = 0; j < 6; ++j) {
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(lines(j, i), w(i, j));
  }
  // Line j is sample firstRead + j of the read, so that a read of its own gives its noise.
  LineRead noisy({}, noisyIo(0.1f), Pass::Forward, 6, 4, kKeys.of(1, Role::Transfer));
  AnalogRead single({}, noisyIo(0.1f), Pass::Forward, 6, 4, kKeys.of(1, Role::Transfer));
  const Mat all(noisy.run({}, w.view(), 30));
  EXPECT_FALSE(sameBits(all, lines));
  for (int64_t j = 0; j < 6; ++j) {
    Mat oneHot(1, 6), line(1, 4);
    oneHot(0, j) = 1.0f;
    single.run({}, w.view(), oneHot.view(), line.view(), 30 + static_cast<uint64_t>(j));
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(line(0, i), all(j, i)) << "line " << j;
  }
}

TEST(PulseWriter, EndsWithinHalfAStep) {
  constexpr float kStep = 1e-3f;
  for (const bool tall : {false, true}) {
    const int64_t rows = tall ? 11 : 4, cols = tall ? 4 : 11;
    PulsedDevice array = arrayOf(idealCells(kStep), rows, cols);
    const Mat target = randomMat(rows, cols, 0.2f, 3);
    PulseWriter().write({}, array, target.view(), 0);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j)
        EXPECT_NEAR(array.weights()(i, j), target(i, j), 0.501f * kStep);
    }
    EXPECT_GT(array.pulseCount({}), 0u);
  }
}

// Writes one line of another array at its place, as needed by other compounds.
TEST(PulseTransfer, AOneHotFactorWritesOneColumn) {
  PulsedDevice array = arrayOf(idealCells(1e-4f), 5, 7);
  TransferRule rule;
  rule.lr = 0.5f;
  PulseTransfer transfer({}, rule, kKeys.of(0, Role::Update));
  const Mat line = randomMat(5, 1, 0.1f, 2);
  Mat place(7, 1);
  place(3, 0) = 1.0f;
  const TransferFactors factors{line.view(), place.view()};
  constexpr int kTimes = 40;
  for (int n = 0; n < kTimes; ++n) transfer.run({}, array, factors, factors);
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 7; ++j) {
      const double wanted = j == 3 ? kTimes * 0.5 * double(line(i, 0)) : 0.0;
      // Each slot is an independent trial: the variance is at most dw |mean|; 5 sigma.
      EXPECT_NEAR(array.weights()(i, j), wanted, 5.0 * std::sqrt(1e-4 * std::fabs(wanted)) + 1e-6);
    }
  }
  EXPECT_EQ(transfer.count(), static_cast<uint64_t>(kTimes));
  EXPECT_NEAR(transfer.ledger().total({}).gain(), 1.0, 0.02);
}

TEST(TransferLedger, Property40_CountsItsOwnPulsesWhereOthersPulseTheArrayToo) {
  PulsedDevice array = arrayOf(idealCells(1e-3f), 6, 9);
  TransferRule rule;
  rule.components = 2;
  rule.chunk = 2;
  PulseTransfer transfer({}, rule, kKeys.of(0, Role::Update));
  PulsedWeightUpdater other(UpdateParameters{}, kKeys.of(1, Role::Update));
  const Mat d = randomMat(6, 2, 0.3f, 2), x = randomMat(9, 2, 0.3f, 3);
  const TransferFactors factors{d.view(), x.view()};
  const Mat in = randomMat(4, 9, 1.0f, 4), grad = randomMat(4, 6, 1.0f, 5);
  uint64_t transferred = 0;
  for (uint64_t n = 0; n < 5; ++n) {
    other.update({}, array, in.view(), grad.view(), 0.1f, 1000 + 4 * n);
    const uint64_t before = array.pulseCount({});
    transfer.run({}, array, factors, factors);
    const uint64_t own = array.pulseCount({}) - before;
    EXPECT_EQ(transfer.ledger().latest({}).pulses, own);
    transferred += own;
  }
  EXPECT_EQ(transfer.ledger().total({}).pulses, transferred);
  EXPECT_GT(array.pulseCount({}), transferred);
  // And goes on from a saved state.
  State state;
  transfer.saveTo({}, state, "t/");
  PulseTransfer resumed({}, rule, kKeys.of(0, Role::Update));
  resumed.loadFrom({}, state, "t/");
  EXPECT_EQ(resumed.count(), 5u);
  EXPECT_EQ(resumed.ledger().total({}).pulses, transferred);
}

}  // namespace
}  // namespace pulsora
