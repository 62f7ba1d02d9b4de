#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "tile/tile_test_util.h"
#include "util/state_test_util.h"

// What a compound does while the non-finite flag is set, as a GPU sets it. The CPU has a flag of
// its own here, and inputs of 0, which send no pulses on either backend. (Its pulse trains ignore
// the flag, so that their slots are counted.)

namespace pulsora::testing {
namespace {

/// A device with its counters, apart from a tile, and a flag.
class Flagged {
 public:
  explicit Flagged(const std::string &name)
      : config_(configOf(name)),
        context_(withFlag()),
        device_(config_.compound.make({context_, kRows, kCols, config_, TileKeys{11, 3}})) {}
  Flagged(const Flagged &) = delete;
  Flagged &operator=(const Flagged &) = delete;

  void set(bool isBad) { flag_ = isBad ? 1 : 0; }
  /// A mini-batch of random inputs times `factor`.
  void step(float factor) {
    Batch batch = randomBatch(6, kCols, kRows, c_.miniBatches);
    for (auto *side : {&batch.x, &batch.d})
      for (float &value : *side) value *= factor;
    device_->update(context_, batch.xView(), batch.dView(), 0.1f, c_);
    c_.updateSamples += 6;
    device_->postUpdate(context_, 0.1f, c_);
    ++c_.miniBatches;
  }
  /// Everything that is stored, and the numbers of pulses and of clipped steps.
  State stored() const {
    State state;
    device_->saveTo(context_, state, "");
    for (auto it = state.values.begin(); it != state.values.end();) {
      const std::string end = it->first.substr(it->first.rfind('/') + 1);
      const bool counts = end == "pulses" || end == "clipped";
      it = counts ? std::next(it) : state.values.erase(it);
    }
    return state;
  }

 private:
  Context withFlag() {
    Context context = onCpu(1);
    context.nonfiniteFlag = &flag_;
    return context;
  }

  uint32_t flag_ = 0;
  TileConfig config_;
  Context context_;
  std::unique_ptr<AnalogDevice> device_;
  Counters c_;
};

/// All kinds but those with an adapter, whose transfers take place in any case, and those that
/// change by outer products alone.
std::vector<std::string> kindsWithPulses() {
  std::vector<std::string> names;
  for (const std::string &name : kinds()) {
    if (name.find("lrtt") == std::string::npos && name != "ideal" &&
        name.find("inference") == std::string::npos)
      names.push_back(name);
  }
  return names;
}

class NonfiniteFlag : public ::testing::TestWithParam<std::string> {};

TEST_P(NonfiniteFlag, Property07_WhileItIsSetNothingMovesBetweenArrays) {
  Flagged device(GetParam());
  for (int step = 0; step < 30; ++step) device.step(1.0f);
  const State before = device.stored();
  device.set(true);
  for (int step = 0; step < 15; ++step) device.step(0.0f);
  EXPECT_TRUE(sameState(before, device.stored()));
  device.set(false);
  for (int step = 0; step < 15; ++step) device.step(0.0f);
  EXPECT_FALSE(sameState(before, device.stored()));
}

INSTANTIATE_TEST_SUITE_P(AllKinds, NonfiniteFlag, ::testing::ValuesIn(kindsWithPulses()));

}  // namespace
}  // namespace pulsora::testing
