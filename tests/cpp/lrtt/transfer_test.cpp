#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "linalg/math_util.h"
#include "lrtt/lrtt_test_util.h"
#include "transfer/pulse_transfer.h"

namespace pulsora {
namespace {

// A rig that keeps its adapter over transfers, with random factors of given scales.
LrttRig loaded(int64_t d, int64_t x, int rank, float scaleA, float scaleB, float dwMin) {
  LrttRig rig(d, x, rank);
  rig.params.visible = idealCells(dwMin);
  rig.params.transfer_lr = 1.0f;
  rig.params.reinit = Reinit::None;
  rig.build();
  rig.setFactors(randomMat(d, rank, scaleA, 2), randomMat(rank, x, scaleB, 3));
  return rig;
}

// One component of a lossless transfer as docs/reference/lrtt.md defines it, computed here and not
// by the planner under test: `slots` slots, in each of which line i of A fires with probability
// p[i] and line j of B, independently, with probability q[j].
struct Component {
  double trains, slots;
  std::vector<double> p;  // one for each row of A
  std::vector<double> q;  // one for each column of B
};

std::vector<Component> componentsOf(const Mat &a, const Mat &b, double transferLr, double dw,
                                    double maxTrains = 64.0) {
  constexpr double kTrainLength = 31.0;
  std::vector<Component> components;
  for (int64_t k = 0; k < a.cols; ++k) {
    double largestA = 0.0, largestB = 0.0;
    for (int64_t i = 0; i < a.rows; ++i) largestA = std::max(largestA, std::fabs(double(a(i, k))));
    for (int64_t j = 0; j < b.cols; ++j) largestB = std::max(largestB, std::fabs(double(b(k, j))));
    const double pulses = std::fabs(transferLr) * largestA * largestB / dw;
    Component c;
    c.trains = std::min(std::ceil(pulses / kTrainLength), maxTrains);
    c.slots = c.trains * kTrainLength;
    const double p = std::sqrt(pulses / c.slots);
    for (int64_t i = 0; i < a.rows; ++i)
      c.p.push_back(std::min(1.0, p * std::fabs(double(a(i, k))) / largestA));
    for (int64_t j = 0; j < b.cols; ++j)
      c.q.push_back(std::min(1.0, p * std::fabs(double(b(k, j))) / largestB));
    components.push_back(c);
  }
  return components;
}

// Variance of the change of each cell, [rows of A][columns of B]: each slot is an independent trial
// per cell.
std::vector<double> predictedVariance(const std::vector<Component> &components, double dw) {
  const size_t rows = components[0].p.size(), columns = components[0].q.size();
  std::vector<double> variance(rows * columns);
  for (const Component &c : components) {
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        const double both = c.p[i] * c.q[j];
        variance[i * columns + j] += c.slots * dw * dw * both * (1.0 - both);
      }
    }
  }
  return variance;
}

// Standard deviation of the gain. Cells of one line share its train: for one slot, <dW, T> = s^T M
// u with independent s and u of means p and q, of variance sum M^2 V W + sum V (M q)^2 + sum W (M^T
// p)^2, V = p (1 - p), W = q (1 - q).
double gainDeviation(const std::vector<Component> &components, const Mat &a, const Mat &b,
                     const std::vector<double> &target, double transferLr, double dw) {
  const auto columns = static_cast<size_t>(b.cols);
  double variance = 0.0, square = 0.0;
  for (double value : target) square += transferLr * transferLr * value * value;
  for (size_t k = 0; k < components.size(); ++k) {
    const Component &c = components[k];
    std::vector<double> byColumn(columns);
    for (size_t i = 0; i < c.p.size(); ++i) {
      const double p = c.p[i];
      double byRow = 0.0;
      for (size_t j = 0; j < columns; ++j) {
        const double q = c.q[j];
        const double sign = std::copysign(
            1.0, double(a(int64_t(i), int64_t(k))) * double(b(int64_t(k), int64_t(j))));
        const double m = sign * dw * std::fabs(transferLr) * target[i * columns + j];
        variance += c.slots * m * m * p * (1.0 - p) * q * (1.0 - q);
        byRow += m * q;
        byColumn[j] += m * p;
      }
      variance += c.slots * p * (1.0 - p) * byRow * byRow;
    }
    for (size_t j = 0; j < columns; ++j)
      variance += c.slots * c.q[j] * (1.0 - c.q[j]) * byColumn[j] * byColumn[j];
  }
  return std::sqrt(variance) / square;
}

double squareSum(const std::vector<double> &v) {
  double sum = 0.0;
  for (double value : v) sum += value * value;
  return sum;
}

// 256 x 512 cells; the scales of A and B do not matter, nor does the sign of transfer_lr.
TEST(LrttTransfer, Property20_21_MeanAndVarianceOfLosslessTransfer) {
  struct Case {
    float scaleA, scaleB, transferLr, dwMin;
    bool management, swap;
  };
  for (const Case &c :
       {Case{0.02f, 0.03f, 1.0f, 1e-4f, false, false},
        Case{2.0f, 0.0003f, 1.0f, 1e-4f, false, false},
        Case{0.0005f, 1.2f, -1.0f, 1e-4f, false, false},
        Case{0.02f, 0.03f, 1.0f, 1e-4f, true, false}, Case{0.02f, 0.03f, 1.0f, 1e-5f, false, false},
        Case{0.02f, 0.03f, 1.0f, 1e-5f, false, true}}) {
    LrttRig rig(256, 512, 8);
    rig.params.visible = idealCells(c.dwMin);
    rig.params.reinit = Reinit::None;
    rig.params.transfer_lr = c.transferLr;
    rig.params.transfer_use_update_management = c.management;
    rig.params.swap_xd = c.swap;
    rig.build();
    rig.setFactors(randomMat(c.swap ? 512 : 256, 8, c.scaleA, 2),
                   randomMat(8, c.swap ? 256 : 512, c.scaleB, 3));
    // A B is the target of W, or of W^T where the adapter is that of the transposed tile.
    const Mat a = rig.a(), b = rig.b();
    const std::vector<double> target = product(a, b);
    const double lr = double(c.transferLr), dw = double(c.dwMin);
    const std::vector<Component> components = componentsOf(a, b, lr, dw);
    const std::vector<double> variance = predictedVariance(components, dw);
    const double deviation = gainDeviation(components, a, b, target, lr, dw);
    double trains = 0.0;
    for (const Component &component : components) trains += component.trains;
    rig.device->adapter()->transfer(rig.context);
    const TransferStats stats = rig.latest();
    EXPECT_NEAR(stats.gain(), 1.0, 5.0 * deviation);
    EXPECT_LE(deviation, 0.006);  // so that the line above can fail
    if (c.dwMin == 1e-5f) {
      EXPECT_NEAR(stats.gain(), 1.0, 0.005);
    }
    EXPECT_EQ(stats.undelivered(), 0.0);
    EXPECT_EQ(stats.clippedComponents, 0u);
    EXPECT_EQ(rig.device->visible().saturatedCells(rig.context), 0);
    EXPECT_EQ(double(stats.trains), trains);
    EXPECT_GT(trains, 8.0);
    EXPECT_NEAR(stats.intended / squareSum(target), 1.0, 1e-5);
    const Mat w = rig.w();
    double error = 0.0, predicted = 0.0;
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < b.cols; ++j) {
        const auto at = size_t(i * b.cols + j);
        const double rest = double(c.swap ? w(j, i) : w(i, j)) - lr * target[at];
        error += rest * rest;
        predicted += variance[at];
      }
    }
    EXPECT_NEAR(error / predicted, 1.0, 0.1);
    // The relative error depends on dw / (lr s_a s_b) alone: sqrt((2 / pi) dw / (lr s_a s_b)), for
    // small probabilities.
    const double rough =
        std::sqrt(2.0 / 3.14159265 * double(c.dwMin) / double(c.scaleA * c.scaleB));
    EXPECT_NEAR(std::sqrt(error / squareSum(target)) / rough, 1.0, 0.15);
  }
}

// N = 2000 transfers of the same small A B add up in W.
TEST(LrttTransfer, Property20_MeanPerCell) {
  const int repetitions = 2000;
  LrttRig rig = loaded(3, 4, 2, 0.3f, 0.2f, 0x1p-10f);
  ConstantStep::Params cells = idealCells(0x1p-10f);
  cells.w_max = 10000.0f;
  cells.w_min = -10000.0f;
  rig.params.visible = cells;
  const Mat a = rig.a(), b = rig.b();
  rig.build();
  rig.setFactors(a, b);
  const std::vector<double> target = product(rig.a(), rig.b());
  const std::vector<double> variance = predictedVariance(componentsOf(a, b, 1.0, 0x1p-10), 0x1p-10);
  for (int r = 0; r < repetitions; ++r) rig.device->adapter()->transfer(rig.context);
  const Mat w = rig.w();
  for (size_t i = 0; i < target.size(); ++i) {
    EXPECT_NEAR(double(w.v[i]) / repetitions, target[i], 5.0 * std::sqrt(variance[i] / repetitions))
        << i;
  }
  EXPECT_EQ(rig.transfers(), 2000u);
}

TEST(LrttTransfer, Property22_SingleTrainIsCappedAndReported) {
  LrttRig rig(256, 784, 16);
  rig.params.visible = idealCells(1e-5f);
  rig.params.transfer_lr = 1.0f;
  rig.params.transfer_mode = TransferMode::Single;
  rig.params.reinit = Reinit::None;
  rig.params.reinit_gain = 1.0f;
  rig.build();
  const Mat b = rig.b();
  rig.setFactors(randomMat(256, 16, 0.02f, 2), b);
  rig.device->adapter()->transfer(rig.context);
  const TransferStats stats = rig.latest();
  const Mat w = rig.w();
  for (float value : w.v) ASSERT_LE(std::fabs(value), 16.0f * 31.0f * 1e-5f * 1.0001f);
  EXPECT_NEAR(stats.gain(), 0.17, 0.02);
  EXPECT_GT(stats.undelivered(), 0.5);
  EXPECT_EQ(stats.clippedComponents, 16u);
  EXPECT_EQ(stats.trains, 16u);
}

TEST(LrttTransfer, Property22_TrainsBeyondTheLimitAreReported) {
  LrttRig rig = loaded(64, 64, 4, 0.3f, 0.3f, 1e-5f);
  rig.params.transfer_max_trains = 8;
  const Mat a = rig.a(), b = rig.b();
  rig.build();
  rig.setFactors(a, b);
  rig.device->adapter()->transfer(rig.context);
  const TransferStats stats = rig.latest();
  EXPECT_EQ(stats.trains, 32u);
  EXPECT_EQ(stats.clippedComponents, 4u);
  // The expected number of pulses, cell by cell, beside what the factors ask for.
  double expected = 0.0, wanted = 0.0;
  for (const Component &c : componentsOf(a, b, 1.0, 1e-5, 8.0)) {
    for (const double p : c.p) {
      for (const double q : c.q) expected += c.slots * p * q;
    }
  }
  for (int64_t k = 0; k < 4; ++k) {
    for (int64_t i = 0; i < 64; ++i) {
      for (int64_t j = 0; j < 64; ++j)
        wanted += std::fabs(double(a(i, k)) * double(b(k, j))) / 1e-5;
    }
  }
  EXPECT_NEAR(stats.undelivered(), 1.0 - expected / wanted, 1e-6);
  EXPECT_GT(stats.undelivered(), 0.3);
  EXPECT_LT(stats.gain(), 0.9);
}

TEST(LrttTransfer, ExactAndDigitalTransfersArriveWhole) {
  for (int mode = 0; mode < 3; ++mode) {
    LrttRig rig(20, 30, 4);
    rig.params.transfer_mode = mode == 0 ? TransferMode::Exact : TransferMode::Lossless;
    rig.params.transfer_lr = -0.5f;
    rig.params.reinit = Reinit::None;
    rig.update.pulse_type = mode == 1   ? PulseType::None
                            : mode == 2 ? PulseType::NoneWithDevice
                                        : PulseType::StochasticCompressed;
    rig.build();
    rig.setFactors(randomMat(20, 4, 0.2f, 2), randomMat(4, 30, 0.2f, 3));
    const std::vector<double> target = product(rig.a(), rig.b());
    rig.device->adapter()->transfer(rig.context);
    const Mat w = rig.w();
    for (size_t i = 0; i < target.size(); ++i) EXPECT_NEAR(double(w.v[i]), -0.5 * target[i], 1e-7);
    EXPECT_NEAR(rig.latest().gain(), 1.0, 1e-6);
    EXPECT_EQ(rig.latest().pulses, 0u);
  }
}

TEST(LrttTransfer, NothingToTransferSendsNothing) {
  LrttRig rig(8, 9, 2);
  rig.build();
  const Mat w = rig.w();
  rig.device->adapter()->transfer(rig.context);  // A = 0
  EXPECT_TRUE(sameBits(rig.w(), w));
  EXPECT_EQ(rig.latest().trains, 0u);
  EXPECT_EQ(rig.latest().gain(), 0.0);
  EXPECT_EQ(rig.transfers(), 1u);
}

TEST(LrttTransfer, Property23_Continuity) {
  constexpr double kStep = 1e-4;  // of the rig's visible array
  for (double ratio : {1.0, 0.5}) {
    LrttRig rig(256, 512, 8);
    rig.params.lora_alpha = 2.0f;
    if (ratio != 1.0) rig.params.transfer_lr = float(2.0 * ratio);
    rig.build();
    rig.setFactors(randomMat(256, 8, 0.02f, 2), randomMat(8, 512, 0.03f, 3));
    const std::vector<double> target = product(rig.a(), rig.b());
    const std::vector<Component> components = componentsOf(rig.a(), rig.b(), 2.0 * ratio, kStep);
    const std::vector<double> variance = predictedVariance(components, kStep);
    const double deviation =
        gainDeviation(components, rig.a(), rig.b(), target, 2.0 * ratio, kStep);
    const Mat before = rig.effective();
    rig.device->adapter()->transfer(rig.context);
    const Mat after = rig.effective();
    double total = 0.0, along = 0.0, jump = 0.0;
    for (size_t i = 0; i < target.size(); ++i) {
      const double expected = 2.0 * (ratio - 1.0) * target[i];
      const double rest = double(after.v[i]) - double(before.v[i]) - expected;
      total += variance[i];
      along += rest * 2.0 * ratio * target[i];
      jump += rest * rest;
    }
    EXPECT_LE(std::fabs(along), 5.0 * deviation * 4.0 * ratio * ratio * squareSum(target));
    EXPECT_NEAR(jump / total, 1.0, 0.1);
  }
}

TEST(LrttTransfer, Property24_NoDoubleCounting) {
  for (bool inMiniBatches : {false, true}) {
    LrttRig rig(12, 10, 3);
    rig.params.fast = idealCells(0.001f);
    rig.params.transfer_every = inMiniBatches ? 1 : 20;
    rig.params.units_in_mbatch = inMiniBatches;
    rig.build();
    rig.setW(randomMat(12, 10, 0.1f, 1));
    const Mat in = randomMat(20, 10, 1.0f, 4), start = rig.w();
    rig.learn(in, randomMat(20, 12, 1.0f, 5), 0.05f);
    if (inMiniBatches) {
      EXPECT_EQ(rig.transfers(), 0u);
      rig.endMiniBatch();
    }
    ASSERT_EQ(rig.transfers(), 1u);  // inside the same call
    const Mat w = rig.w();
    EXPECT_FALSE(sameBits(w, start));
    for (float value : rig.a().v) ASSERT_EQ(value, 0.0f);
    Mat expected(20, 12);
    gemm(rig.context, 1.0f, in.view(), w.view().transposed(), 0.0f, expected.view());
    EXPECT_EQ(rig.forward(in).v, expected.v);
    EXPECT_TRUE(sameBits(rig.effective(), w));
  }
}

TEST(LrttTransfer, Property25_ChunkInvariance) {
  for (TransferMode mode : {TransferMode::Lossless, TransferMode::Single}) {
    for (TransferRead read : {TransferRead::Exact, TransferRead::Analog}) {
      std::vector<Mat> results;
      for (int chunk : {-1, 1, 3, 8}) {
        for (int offset : {0, 1, 5}) {
          LrttRig rig(24, 40, 8);
          rig.params.visible = noisyCells(0.0005f);
          rig.params.transfer_mode = mode;
          rig.params.transfer_read = read;
          rig.params.rank_chunk = chunk;
          rig.params.rank_offset = offset;
          rig.params.transfer_every = 16;
          rig.forwardIo = rig.backwardIo = IOParameters{};
          rig.build();
          rig.learn(randomMat(50, 40, 1.0f, 4), randomMat(50, 24, 1.0f, 5), 0.05f);
          EXPECT_EQ(rig.transfers(), 3u);
          results.push_back(rig.w());
          EXPECT_TRUE(sameBits(results.back(), results.front()))
              << "chunk " << chunk << ", offset " << offset;
        }
      }
    }
  }
}

}  // namespace
}  // namespace pulsora
