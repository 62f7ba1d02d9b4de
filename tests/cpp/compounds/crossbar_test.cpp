#include "compounds/crossbar.h"

#include <gtest/gtest.h>

#include "lrtt/lrtt_test_util.h"

namespace pulsora {
namespace {

TilePeriphery noisyAround() {
  TilePeriphery around;
  around.forward.noise_management = NoiseManagement::AverageAbsMax;
  return around;
}

// A crossbar is its parts with the keys of its slot.
TEST(Crossbar, HasTheBitsOfItsParts) {
  const TilePeriphery around = noisyAround();
  const TileKeys keys{9, 2};
  Crossbar crossbar({}, noisyCells(0.002f), 6, 8, around, keys, 4);
  PulsedDevice cells({}, noisyCells(0.002f), 6, 8, keys.of(4, Role::Cells), 4);
  ForwardBackwardPass reads({}, around.forward, around.backward, 6, 8, keys.of(4, Role::Read));
  PulsedWeightUpdater updater(around.update, keys.of(4, Role::Update));
  const Mat x = randomMat(5, 8, 1.0f, 1), d = randomMat(5, 6, 0.3f, 2);
  for (uint64_t n = 0; n < 4; ++n) {
    Mat y(5, 6), dx(5, 8), yParts(5, 6), dxParts(5, 8);
    crossbar.run({}, Pass::Forward, x.view(), y.view(), 5 * n);
    crossbar.run({}, Pass::Backward, d.view(), dx.view(), 5 * n);
    crossbar.update({}, x.view(), d.view(), 0.1f, 5 * n);
    reads.forward().run({}, cells.weights(), x.view(), yParts.view(), 5 * n);
    reads.backward().run({}, cells.weights().transposed(), d.view(), dxParts.view(), 5 * n);
    updater.update({}, cells, x.view(), d.view(), 0.1f, 5 * n);
    EXPECT_TRUE(sameBits(y, yParts));
    EXPECT_TRUE(sameBits(dx, dxParts));
  }
  EXPECT_TRUE(sameBits(Mat(crossbar.weights()), Mat(cells.weights())));
}

TEST(Crossbar, Property38_GoesOnFromWhatItSaved) {
  const TilePeriphery around = noisyAround();
  Crossbar one({}, noisyCells(0.002f), 6, 8, around, TileKeys{9, 2}, 0);
  const Mat x = randomMat(5, 8, 1.0f, 1), d = randomMat(5, 6, 0.3f, 2);
  Mat y(5, 6), again(5, 6);
  one.run({}, Pass::Forward, x.view(), y.view(), 0);
  one.update({}, x.view(), d.view(), 0.1f, 0);
  State state;
  one.saveTo({}, state, "w/");
  Crossbar other({}, noisyCells(0.002f), 6, 8, around, TileKeys{9, 2}, 0);
  other.loadFrom({}, state, "w/");
  one.run({}, Pass::Forward, x.view(), y.view(), 5);
  other.run({}, Pass::Forward, x.view(), again.view(), 5);
  EXPECT_TRUE(sameBits(y, again));
  EXPECT_TRUE(sameBits(Mat(one.weights()), Mat(other.weights())));
}

// Slots of one tile share no random number.
TEST(Crossbar, Property39_SlotsDiffer) {
  const Crossbar a({}, noisyCells(0.002f), 6, 8, {}, TileKeys{9, 2}, 3);
  const Crossbar b({}, noisyCells(0.002f), 6, 8, {}, TileKeys{9, 2}, 4);
  State ofA, ofB;
  a.saveTo({}, ofA, "");
  b.saveTo({}, ofB, "");
  EXPECT_NE(ofA.tensors.at("cells").bytes, ofB.tensors.at("cells").bytes);
}

}  // namespace
}  // namespace pulsora
