#include <gtest/gtest.h>
#include <vector>

#include "transfer/line_buffer.h"

// Inputs with the signs of choppers: by rows, as a CPU makes them, and by elements of some
// successive samples, as a GPU does.

namespace pulsora {
namespace {

constexpr int64_t kSamples = 300;
constexpr int64_t kLines = 5;
constexpr int64_t kOthers = 7;

ChoppedInput chopped(bool ofLines, bool regular, int64_t together, int64_t every,
                     const std::vector<float> &in, const std::vector<float> &signs,
                     std::vector<float> &out) {
  ChopperFlips flips;
  flips.rule.lines = kLines;
  flips.rule.others = kOthers;
  flips.rule.lineFlips = 0.4f;
  flips.rule.otherFlips = 0.3f;
  flips.rule.regular = regular;
  flips.rule.period = 2;
  flips.visits.lines = kLines;
  flips.visits.first = 13;
  flips.visits.origin = 11;
  flips.visits.together = together;
  flips.visits.count = (kSamples - 1) / every * together;
  flips.key = {1, 2};
  const int64_t cols = ofLines ? kLines : kOthers;
  return {rowMajor<const float>(in.data(), kSamples, cols),
          flips,
          signs.data(),
          ofLines,
          nullptr,
          1,
          every,
          out.data()};
}

TEST(ChoppedInput, ElementsOfSuccessiveSamplesHaveTheSignsOfRows) {
  for (const bool ofLines : {true, false}) {
    for (const bool regular : {true, false}) {
      for (const int64_t together : {1, 3}) {
        for (const int64_t every : {1, 4}) {
          const auto cols = static_cast<size_t>(ofLines ? kLines : kOthers);
          std::vector<float> in(kSamples * cols), rows(in.size());
          for (size_t i = 0; i < in.size(); ++i) in[i] = 1.0f + static_cast<float>(i);
          const std::vector<float> signs(cols, -1.0f);
          chopped(ofLines, regular, together, every, in, signs, rows).ofRows(0, kSamples);
          int changes = 0;
          for (size_t i = cols; i < in.size(); ++i)
            changes += (rows[i] < 0.0f) != (rows[i - cols] < 0.0f);
          EXPECT_GT(changes, 20) << "the signs of this case hardly change";
          for (const int64_t successive : {1, 2, 7, 64, 1000}) {
            std::vector<float> elements(in.size());
            ChoppedInput input = chopped(ofLines, regular, together, every, in, signs, elements);
            input.successive = successive;
            const int64_t pieces = (kSamples + successive - 1) / successive;
            for (int64_t i = 0; i < pieces * static_cast<int64_t>(cols); ++i) input(i);
            EXPECT_EQ(elements, rows) << successive << " samples, lines " << ofLines << ", regular "
                                      << regular << ", " << together << " reads each " << every;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pulsora
