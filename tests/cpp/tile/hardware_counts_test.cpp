// Tile::hardwareCounts() of a tile small enough to count by hand.

#include <gtest/gtest.h>
#include <string>

#include "tile/tile.h"
#include "tile/tile_test_util.h"

namespace pulsora::testing {
namespace {

constexpr int64_t kSamples = 4;
constexpr int64_t kSteps = 3;
constexpr int64_t kAll = kSamples * kSteps;

/// Steps of forward, backward and update with inputs that are not 0; trains of 10 slots.
Tile trained() {
  const Value update(Value::Map{{"desired_bl", 10}, {"update_bl_management", false}});
  Tile tile(kRows, kCols, configOf("single", {{"update", update}}), 11, 3, onCpu(1));
  for (uint64_t step = 0; step < kSteps; ++step) {
    const Batch b = randomBatch(kSamples, kCols, kRows, 100 + step);
    Numbers y(kSamples * kRows), dx(kSamples * kCols);
    tile.forward(b.xView(), rowMajor(y.data(), kSamples, kRows));
    tile.backward(b.dView(), rowMajor(dx.data(), kSamples, kCols));
    tile.update(b.xView(), b.dView(), 0.1f);
  }
  return tile;
}

int64_t number(const Value::Map &map, const std::string &name) { return *map.at(name).integer(); }

TEST(HardwareCounts, ASingleArrayByHand) {
  const Tile tile = trained();
  const Value::Map counts = tile.hardwareCounts();
  for (const char *pass : {"forward_samples", "backward_samples", "update_samples"})
    EXPECT_EQ(number(counts, pass), kAll) << pass;
  EXPECT_EQ(number(counts, "mini_batches"), kSteps);
  EXPECT_EQ(number(counts, "digital_operations"), 0);
  EXPECT_EQ(number(counts, "transfers"), 0);

  const Value::List &arrays = *counts.at("arrays").list();
  ASSERT_EQ(arrays.size(), 1u);
  const Value::Map &array = *arrays[0].map();
  EXPECT_EQ(*array.at("name").text(), "visible");
  EXPECT_EQ(number(array, "rows"), kRows);
  EXPECT_EQ(number(array, "columns"), kCols);
  EXPECT_EQ(number(array, "slots"), 10 * kAll);
  EXPECT_EQ(number(array, "lines"), 0);
  EXPECT_EQ(number(array, "pulses"), *tile.statistics().at("pulses").integer());
  EXPECT_GT(number(array, "pulses"), 0);

  const Value::List &reads = *counts.at("reads").list();
  ASSERT_EQ(reads.size(), 2u);
  for (const Value &each : reads) {
    const Value::Map &read = *each.map();
    const bool forward = *read.at("use").text() == "forward";
    const int64_t times = kAll + number(read, "repeats");
    EXPECT_EQ(number(read, "samples"), kAll);
    EXPECT_EQ(number(read, "array_reads"), times);
    EXPECT_EQ(number(read, "cell_reads"), times * kRows * kCols);
    EXPECT_EQ(number(read, "dac"), times * (forward ? kCols : kRows));
    EXPECT_EQ(number(read, "adc"), times * (forward ? kRows : kCols));
    EXPECT_EQ(number(read, "blocks"), 1);
  }
  EXPECT_NE(*reads[0].map()->at("use").text(), *reads[1].map()->at("use").text());
}

TEST(HardwareCounts, ALookAtTheTileIsLeftOut) {
  Tile tile = trained();
  const Value::Map before = tile.hardwareCounts();
  tile.statistics();
  Numbers w(kRows * kCols);
  tile.getWeights(rowMajor(w.data(), kRows, kCols));
  EXPECT_EQ(tile.hardwareCounts(), before);
}

}  // namespace
}  // namespace pulsora::testing
