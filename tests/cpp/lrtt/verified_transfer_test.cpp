// Transfers that are read back, with further sendings of the missing change.

#include <cmath>
#include <gtest/gtest.h>

#include "lrtt/lrtt_test_util.h"

namespace pulsora {
namespace {

// Soft bounds whose up steps are small where W stands: a lossless transfer delivers a part, and a
// verified one reads that back and sends the rest.
TEST(LrttTransfer, VerifiedTransfersDeliverWhatAsymmetricCellsLose) {
  const auto sent = [](TransferMode mode, int rounds, float w) {
    LrttRig rig(48, 64, 4);
    SoftBounds::Params cell;
    cell.dw_min = 1e-3f;
    cell.dw_min_std = 0.0f;
    rig.params.visible = cell;
    rig.params.transfer_mode = mode;
    rig.params.transfer_rounds = rounds;
    rig.params.transfer_lr = 1.0f;
    rig.params.reinit = Reinit::None;
    rig.build();
    rig.setW(Mat(48, 64, w));
    Mat a = randomMat(48, 4, 0.1f, 2), b = randomMat(4, 64, 0.1f, 3);
    for (Mat *factor : {&a, &b}) {  // all changes upwards
      for (float &v : factor->v) v = std::fabs(v);
    }
    rig.setFactors(a, b);
    rig.device->adapter()->transfer(rig.context);
    return rig.latest();
  };
  const TransferStats lossless = sent(TransferMode::Lossless, 1, 0.3f);
  EXPECT_LT(lossless.gain(), 0.6);
  EXPECT_EQ(lossless.sendings, 1u);
  const TransferStats verified = sent(TransferMode::Verified, 6, 0.3f);
  EXPECT_NEAR(verified.gain(), 1.0, 0.02);
  EXPECT_GE(verified.sendings, 3u);
  EXPECT_LE(verified.sendings, 7u);
  EXPECT_GT(verified.trains, lossless.trains);
  EXPECT_GT(verified.pulses, lossless.pulses);
  EXPECT_EQ(verified.undelivered(), 0.0);
  // One round is not enough here, as the gain shows.
  const double once = sent(TransferMode::Verified, 1, 0.3f).gain();
  EXPECT_GT(once, lossless.gain() + 0.2);
  EXPECT_LT(once, 0.98);
  // Below 0 the up steps are larger: too much arrives, and some of it is taken back.
  EXPECT_GT(sent(TransferMode::Lossless, 1, -0.3f).gain(), 1.3);
  EXPECT_NEAR(sent(TransferMode::Verified, 6, -0.3f).gain(), 1.0, 0.02);
}

// If one sending delivers everything, a verified transfer has the bits of a lossless one.
TEST(LrttTransfer, VerifiedTransfersStopOnceAllHasArrived) {
  const auto sent = [](TransferMode mode) {
    LrttRig rig(64, 64, 4);
    rig.params.visible = idealCells(1e-6f);
    rig.params.transfer_mode = mode;
    rig.params.transfer_lr = 1.0f;
    rig.params.transfer_max_trains = 1000;
    rig.params.reinit = Reinit::None;
    rig.build();
    rig.setFactors(randomMat(64, 4, 0.05f, 2), randomMat(4, 64, 0.05f, 3));
    rig.device->adapter()->transfer(rig.context);
    EXPECT_EQ(rig.latest().sendings, 1u);
    return rig.w();
  };
  EXPECT_TRUE(sameBits(sent(TransferMode::Verified), sent(TransferMode::Lossless)));
}

// Cells at their bounds take nothing, however often it is sent.
TEST(LrttTransfer, VerifiedTransfersStopWhereCellsAreFull) {
  const auto sendings = [](float room, float scale, float dwMin) {
    LrttRig rig(64, 64, 4);
    ConstantStep::Params cell = idealCells(dwMin);
    cell.w_max = 0.5f;
    rig.params.visible = cell;
    rig.params.transfer_mode = TransferMode::Verified;
    rig.params.transfer_rounds = 5;
    rig.params.transfer_max_trains = 30;
    rig.params.transfer_lr = 1.0f;
    rig.params.reinit = Reinit::None;
    rig.build();
    rig.setW(Mat(64, 64, cell.w_max - room));
    rig.setFactors(Mat(64, 4, scale), Mat(4, 64, scale));  // all changes upwards
    rig.device->adapter()->transfer(rig.context);
    EXPECT_LT(rig.latest().gain(), 0.2);
    return rig.latest().sendings;
  };
  EXPECT_EQ(sendings(0.0f, 0.3f, 1e-4f), 1u);   // of 0.36, nothing arrives
  EXPECT_EQ(sendings(0.04f, 0.3f, 1e-4f), 2u);  // of a ninth that does, all in the first sending
  // The pulse trains are too few for a hundredth of 0.36, but the cells take all their pulses.
  EXPECT_EQ(sendings(0.5f, 0.3f, 1e-6f), 6u);
  // With few pulses nothing may have arrived by chance.
  EXPECT_EQ(sendings(0.0f, 0.01f, 1e-4f), 6u);
}

}  // namespace
}  // namespace pulsora
