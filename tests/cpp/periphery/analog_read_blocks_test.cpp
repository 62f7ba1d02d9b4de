#include <gtest/gtest.h>
#include <vector>

#include "core/check.h"
#include "linalg/math_util.h"
#include "lrtt/lrtt_test_util.h"
#include "periphery/additive_reads.h"
#include "periphery/analog_read.h"

namespace pulsora {
namespace {

constexpr RandomKey kKey = {7, 9};

TEST(AnalogReadBlocks, LinesAreCutEvenlyIntoAsFewRangesAsPossible) {
  for (const int64_t size : {1, 7, 8, 9, 70, 513}) {
    for (const int64_t limit : {1, 3, 8, 32, 1000}) {
      const std::vector<LineRange> ranges = cutLines(size, limit);
      EXPECT_EQ(static_cast<int64_t>(ranges.size()), countOfRanges(size, limit));
      EXPECT_EQ(static_cast<int64_t>(ranges.size()), (size + limit - 1) / limit);
      int64_t end = 0;
      for (const LineRange &range : ranges) {
        EXPECT_EQ(range.first, end);
        EXPECT_LE(range.count, limit);
        EXPECT_GE(range.count, size / static_cast<int64_t>(ranges.size()));
        end += range.count;
      }
      EXPECT_EQ(end, size);
    }
  }
  EXPECT_EQ(cutLines(70, 0).size(), 1U);
}

// The digital sum of reads of single blocks, each with its key, in the order of inputs.
TEST(AnalogReadBlocks, AReadIsTheSumOfThoseOfItsBlocks) {
  constexpr int64_t kOut = 11, kIn = 17, kSamples = 9;
  const Mat w = randomMat(kOut, kIn, 0.4f, 1), in = randomMat(kSamples, kIn, 1.0f, 2);
  for (const Pass pass : {Pass::Forward, Pass::Backward}) {
    AnalogRead read({}, noisyIo(0.1f), pass, kIn, kOut, kKey, {6, 4});
    Mat out(kSamples, kOut);
    read.run({}, w.view(), in.view(), out.view(), 5);
    const std::vector<LineRange> outs = cutLines(kOut, 4), ins = cutLines(kIn, 6);
    Mat expected(kSamples, kOut);
    for (size_t i = 0; i < outs.size(); ++i) {
      for (size_t j = 0; j < ins.size(); ++j) {
        // The number of a block of cells is the same in both directions.
        const size_t number = pass == Pass::Forward ? i * ins.size() + j : j * outs.size() + i;
        AnalogRead block({}, noisyIo(0.1f), pass, ins[j].count, outs[i].count,
                         partKey(kKey, static_cast<uint32_t>(number)));
        Mat sums(kSamples, outs[i].count);
        block.run({}, w.view().block(outs[i].first, ins[j].first, outs[i].count, ins[j].count),
                  in.view().block(0, ins[j].first, kSamples, ins[j].count), sums.view(), 5);
        addScaled({}, {sums.view().data, 1.0f,
                       expected.view().block(0, outs[i].first, kSamples, outs[i].count)});
      }
    }
    EXPECT_TRUE(sameBits(out, expected));
  }
}

TEST(AnalogReadBlocks, EachBlockKeepsItsRunningMean) {
  IOParameters p = noisyIo(0.1f);
  p.noise_management = NoiseManagement::AverageAbsMax;
  const Mat w = randomMat(6, 8, 0.4f, 1), in = randomMat(5, 8, 1.0f, 2);
  const auto make = [&] { return AnalogRead({}, p, Pass::Forward, 8, 6, kKey, {4, 3}); };
  AnalogRead read = make(), other = make();
  Mat out(5, 6), again(5, 6);
  read.run({}, w.view(), in.view(), out.view(), 0);
  EXPECT_EQ(read.runningMeans().size(), 4U);
  State state;
  read.saveTo({}, state, "read/");
  EXPECT_EQ(state.tensors.size(), 4U);
  other.loadFrom({}, state, "read/");
  read.run({}, w.view(), in.view(), out.view(), 5);
  other.run({}, w.view(), in.view(), again.view(), 5);
  EXPECT_TRUE(sameBits(out, again));
}

TEST(AnalogReadBlocks, AReadThroughOneProductHasOneBlock) {
  AnalogRead read({}, noisyIo(0.1f), Pass::Forward, 8, 6, kKey, {4, 0});
  EXPECT_FALSE(read.canBeBatched({}));
  const Mat w = randomMat(6, 8, 0.4f, 1), in = randomMat(5, 8, 1.0f, 2);
  Mat out(5, 6);
  const AnalogRead::Product product = [](MatrixView<const float>, MatrixView<float>) {};
  EXPECT_THROW(read.run({}, w.view(), product, in.view(), out.view(), 0), ConfigError);
}

}  // namespace
}  // namespace pulsora
