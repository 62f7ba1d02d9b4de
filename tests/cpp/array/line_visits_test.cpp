#include <gtest/gtest.h>

#include "array/device_contract.h"
#include "array/line_visits_checks.h"

// Lines of an array that are read, pulsed and reset one after another, for every device model.

namespace pulsora::testing {
namespace {

class LineContract : public DeviceContract {
 protected:
  LineCase oneCase(bool columns, const Value::Map &values = {}) const {
    return {params(values), 13, 9, columns};
  }
};

/// Fails unless a run with taps is the run whose mini-batch ends at each event, at any number of
/// threads.
void expectTapsAreCuts(const LineCase &c) {
  const LineRun cut = tappedRun(cpu(), c, true);
  for (const int threads : {1, 3}) {
    const LineRun tapped = tappedRun(cpu(threads), c, false);
    EXPECT_TRUE(sameBits(tapped.seen, cut.seen));
    EXPECT_TRUE(sameState(tapped.state, cut.state));
  }
}

TEST_P(LineContract, TapsSeeTheWeightsOfAMiniBatchThatEndsThere) {
  for (const bool columns : {true, false}) {
    LineCase c = oneCase(columns);
    for (const int desiredBl : {1, 31, 40}) {
      c.desiredBl = desiredBl;
      expectTapsAreCuts(c);
    }
    c.together = 2;
    expectTapsAreCuts(c);
    c.random = true;
    expectTapsAreCuts(c);
    expectTapsAreCuts({params({{"write_noise_std", 3.0}}), 5, 70, columns, 3, true});
  }
}

TEST_P(LineContract, ResetsBetweenSamplesAreThoseOfAMiniBatchThatEndsThere) {
  const Value::Map values{{"reset", 0.1}, {"reset_dtod", 0.05}, {"reset_std", 0.02}};
  for (const bool columns : {true, false}) {
    for (const float probability : {0.4f, 1.0f}) {
      LineCase c = oneCase(columns, values);
      c.reset = probability;
      expectTapsAreCuts(c);
      c.together = 2;
      c.random = true;
      expectTapsAreCuts(c);
    }
  }
}

TEST_P(LineContract, PulsesOfLinesFollowTheRule) {
  for (const bool columns : {true, false}) {
    const LineCase c = oneCase(columns);
    const int64_t count = 2 * c.lines() + 3;  // some lines are visited three times
    PulsedDevice array(cpu(), c.device, c.rows, c.cols, kKey);
    const LineVisits visits = c.visits(count);
    const std::vector<float> counts = someCounts(visits, c.others());
    // One mini-batch of one sample per visit, which sends these counts to that line alone.
    std::vector<TestWords> batches;
    for (int64_t v = 0; v < count; ++v) {
      batches.push_back(TestWords::onLine(c.rows, c.cols, columns, visits.line(v),
                                          &counts[static_cast<size_t>(v * c.others())], 40,
                                          300 + static_cast<uint64_t>(v)));
    }
    std::vector<const TestWords *> list;
    for (const TestWords &words : batches) list.push_back(&words);
    const std::vector<float> expected = typed().reference(c.device, array, list);
    array.applyToLines(cpu(), {visits, columns, false, counts.data(), 300});
    EXPECT_TRUE(sameBits(storedWeights(array), expected));
    uint64_t sent = 0;
    for (const float n : counts) sent += static_cast<uint64_t>(std::abs(n));
    EXPECT_EQ(array.pulseCount(cpu()), sent);
  }
}

TEST_P(LineContract, PulsesOfLinesMayBeCutAnywhere) {
  for (const bool columns : {true, false}) {
    for (const bool digital : {false, true}) {
      for (const bool random : {false, true}) {
        LineCase c = oneCase(columns, {{"write_noise_std", 1.0}});
        c.random = random;
        c.together = random ? 2 : 1;
        const LineRun cut = pulsedRun(cpu(), c, 40, digital, true);
        EXPECT_TRUE(sameState(pulsedRun(cpu(3), c, 40, digital, false).state, cut.state));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllModels, LineContract, ::testing::ValuesIn(modelNames()), testName);

TEST(LineVisits, LinesFollowOneAnotherFromTheOrigin) {
  LineVisits v;
  v.lines = 5;
  v.count = 12;
  v.first = 23;
  v.origin = 21;
  for (int64_t i = 0; i < v.count; ++i) {
    EXPECT_EQ(v.line(i), (i + 2) % 5);
    EXPECT_EQ(v.isFirst(i), i < 5);
    EXPECT_EQ(v.next(i), i + 5);
  }
}

TEST(LineVisits, DrawnLinesAreUniformAndFollowWithinAnEvent) {
  LineVisits v;
  v.lines = 7;
  v.together = 3;
  v.random = true;
  v.key = makeKey(1, 2, 3);
  v.count = 3 * 7000;
  std::vector<int> starts(7);
  for (int64_t i = 0; i < v.count; i += 3) {
    ++starts[static_cast<size_t>(v.line(i))];
    EXPECT_EQ(v.line(i + 1), (v.line(i) + 1) % 7);
    EXPECT_EQ(v.line(i + 2), (v.line(i) + 2) % 7);
  }
  for (const int n : starts) EXPECT_NEAR(n, 1000, 5 * std::sqrt(1000.0 * 6 / 7));
}

}  // namespace
}  // namespace pulsora::testing
