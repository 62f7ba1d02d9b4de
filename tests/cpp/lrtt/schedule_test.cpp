#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "lrtt/lrtt_test_util.h"
#include "transfer/transfer_schedule.h"

// The times of transfers, and the sum of many transfers.

namespace pulsora {
namespace {

TEST(LrttSchedule, Property26_Schedule) {
  const Mat in = randomMat(64, 6, 1.0f, 4), grad = randomMat(64, 5, 1.0f, 5);
  LrttRig rig(5, 6, 2);
  rig.params.transfer_every = 100;
  rig.build();
  for (int batch = 1; batch <= 100; ++batch) {
    rig.learn(in, grad, 0.01f);
    rig.endMiniBatch();
    EXPECT_EQ(rig.transfers(), uint64_t(batch * 64 / 100));
  }
  EXPECT_EQ(rig.transfers(), 64u);

  rig.params.transfer_every = 7;
  rig.build();
  uint64_t samples = 0;
  for (int batch = 0; batch < 200; ++batch) {
    const int64_t count = (batch * 37) % 65;
    rig.learn(in.rowsFrom(0, count), grad.rowsFrom(0, count), 0.01f);
    rig.endMiniBatch();
    samples += uint64_t(count);
    EXPECT_EQ(rig.transfers(), samples / 7);
  }

  rig.params.transfer_every = 3;
  rig.params.units_in_mbatch = true;
  rig.build();
  for (uint64_t batch = 1; batch <= 20; ++batch) {
    rig.learn(in, grad, 0.01f);
    rig.endMiniBatch();
    EXPECT_EQ(rig.transfers(), batch / 3);
  }

  rig.params.transfer_every = 0;
  rig.build();
  rig.learn(in, grad, 0.01f);
  rig.endMiniBatch();
  EXPECT_EQ(rig.transfers(), 0u);
}

TEST(LrttSchedule, Property26_CountsHowManyAreDue) {
  using Unit = TransferSchedule::Unit;
  for (const int64_t period : {int64_t{1}, int64_t{7}, INT64_MAX}) {
    TransferSchedule schedule(period, Unit::Samples);
    int64_t samples = 0;
    for (const int64_t count : {0, 3, 1, 40, 6, 7, 8}) {
      const int64_t due = schedule.dueWithin(Unit::Samples, count);
      EXPECT_EQ(due, (samples + count) / period - samples / period);
      EXPECT_EQ(schedule.due(Unit::Samples, count), due > 0);
      EXPECT_EQ(schedule.dueWithin(Unit::MiniBatches, count), 0);
      int64_t passed = 0;
      for (int64_t left = count; left > 0;) {
        const int64_t next = schedule.next(left);
        passed += schedule.passed(Unit::Samples, next) ? 1 : 0;
        left -= next;
      }
      EXPECT_EQ(passed, due);
      samples += count;
    }
  }
  // The largest numbers do not overflow.
  State state;
  state.values["since"] = Value(INT64_MAX - 1);
  TransferSchedule schedule(INT64_MAX, Unit::Samples);
  schedule.loadFrom(state, "since");
  EXPECT_EQ(schedule.dueWithin(Unit::Samples, 0), 0);
  EXPECT_EQ(schedule.dueWithin(Unit::Samples, INT64_MAX), 1);
}

// A due point inside a batch acts exactly like two batches that meet there.
TEST(LrttSchedule, Property26_ABatchIsSplitAtTheDuePoint) {
  const Mat in = randomMat(50, 10, 1.0f, 4), grad = randomMat(50, 12, 1.0f, 5);
  LrttRig whole(12, 10, 3), cut(12, 10, 3);
  whole.params.transfer_every = 20;
  whole.build();
  cut.build();
  whole.learn(in, grad, 0.05f);
  for (int64_t start : {0, 20, 40}) {
    const int64_t count = std::min<int64_t>(20, 50 - start);
    cut.learn(in.rowsFrom(start, count), grad.rowsFrom(start, count), 0.05f);
    if (count == 20) cut.device->adapter()->transfer(cut.context);
  }
  EXPECT_TRUE(sameBits(whole.w(), cut.w()));
  EXPECT_TRUE(sameBits(whole.a(), cut.a()));
  EXPECT_TRUE(sameBits(whole.b(), cut.b()));
}

// Rank by elimination with full pivoting: pivots above 1e-5 of the first count.
int rankOf(const Mat &w) {
  std::vector<double> m(w.v.begin(), w.v.end());
  const auto at = [&](int64_t i, int64_t j) -> double & { return m[size_t(i * w.cols + j)]; };
  double first = 0.0;
  for (int64_t step = 0; step < std::min(w.rows, w.cols); ++step) {
    int64_t row = step, col = step;
    for (int64_t i = step; i < w.rows; ++i) {
      for (int64_t j = step; j < w.cols; ++j) {
        if (std::fabs(at(i, j)) > std::fabs(at(row, col))) row = i, col = j;
      }
    }
    const double pivot = at(row, col);
    if (step == 0) first = std::fabs(pivot);
    if (std::fabs(pivot) <= 1e-5 * first) return int(step);
    for (int64_t j = 0; j < w.cols; ++j) std::swap(at(step, j), at(row, j));
    for (int64_t i = 0; i < w.rows; ++i) std::swap(at(i, step), at(i, col));
    for (int64_t i = step + 1; i < w.rows; ++i) {
      const double factor = at(i, step) / pivot;
      for (int64_t j = step; j < w.cols; ++j) at(i, j) -= factor * at(step, j);
    }
  }
  return int(std::min(w.rows, w.cols));
}

TEST(LrttSchedule, Property30_RankGrowth) {
  LrttRig rig(10, 12, 3);
  rig.params.transfer_every = 8;
  rig.params.transfer_mode = TransferMode::Exact;
  rig.update.pulse_type = PulseType::None;
  rig.build();
  for (int transfers = 1; transfers <= 5; ++transfers) {
    const uint64_t seed = 10 * uint64_t(transfers);
    rig.learn(randomMat(8, 12, 1.0f, seed), randomMat(8, 10, 1.0f, seed + 1), 0.1f);
    EXPECT_EQ(rankOf(rig.w()), std::min(3 * transfers, 10));
  }
}

}  // namespace
}  // namespace pulsora
