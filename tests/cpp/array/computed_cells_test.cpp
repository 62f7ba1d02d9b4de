#include "array/computed_cells.h"

#include "array/device_contract.h"
#include "util/message_test_util.h"

// Cells that are computed whenever an operation touches them have the bits of stored ones.

namespace pulsora::testing {
namespace {

class ComputedCells : public DeviceContract {};
INSTANTIATE_TEST_SUITE_P(Models, ComputedCells, ::testing::ValuesIn(modelNames()), testName);

TEST_P(ComputedCells, HaveTheBitsOfStoredOnesInEveryOperation) {
  for (const int threads : {1, 3}) expectBitsOfStored(cpu(threads), GetParam());
  expectBitsOfStored(cpu(), GetParam(), {{"construction_seed", 9}});
}

TEST_P(ComputedCells, TakeNoMemoryBetweenOperations) {
  const auto bytes = [&](const char *cells) {
    return PulsedDevice(cpu(), params({{"cells", cells}, {"reset_dtod", 0.1}}), 10, 10, kKey)
        .memoryBytes();
  };
  EXPECT_EQ(bytes("computed"), 400U);
  EXPECT_GT(bytes("stored"), 1000U);
}

TEST_P(ComputedCells, StatesOfEitherKindLoadIntoEither) {
  const auto arrayOf = [&](const char *cells, uint64_t seed) {
    return PulsedDevice(cpu(), params({{"cells", cells}, {"reset_dtod", 0.1}}), 5, 9,
                        makeKey(seed, 0, 0));
  };
  const auto weightsAfter = [&](PulsedDevice &array) {
    array.applyPulses(cpu(), TestWords::random(5, 9, 8, 31, 3).view());
    array.resetColumns(cpu(), 0, 9, 0.5f, 1);
    return storedWeights(array);
  };
  for (const char *from : {"stored", "computed"}) {
    PulsedDevice saved = arrayOf(from, 1);
    fillWeights(saved, startWeight);
    State state;
    saved.saveTo(cpu(), state, "");
    const std::vector<float> expected = weightsAfter(saved);
    for (const char *to : {"stored", "computed"}) {
      for (const uint64_t seed : {1U, 2U}) {  // of the array that loads
        SCOPED_TRACE(std::string(from) + " into " + to);
        PulsedDevice loaded = arrayOf(to, seed);
        loaded.loadFrom(cpu(), state, "");
        const bool comesWithCells = std::string(from) == "stored" && seed == 2;
        EXPECT_EQ(loaded.storesCells(), std::string(to) == "stored" || comesWithCells);
        EXPECT_TRUE(sameBits(describe(loaded).wMax, describe(saved).wMax));
        if (seed != 1) continue;  // other noise
        EXPECT_TRUE(sameBits(weightsAfter(loaded), expected));
      }
    }
  }
}

TEST(ComputedCellsOfStates, AreRefusedUnlessTheKeyDrawsThem) {
  const auto device = makeParams("SoftBounds", {{"cells", "computed"}});
  PulsedDevice array(cpu(), device, 5, 9, kKey);
  fillWeights(array, startWeight);
  State before;
  array.saveTo(cpu(), before, "");
  const auto refusal = [&](const Value &cells) {
    State state = before;
    state.values["cells_drawn"] = cells;
    const std::string says = messageOf([&] { array.loadFrom(cpu(), state, ""); });
    EXPECT_THROW(array.loadFrom(cpu(), state, ""), StateError);
    State after;
    array.saveTo(cpu(), after, "");
    EXPECT_TRUE(sameState(before, after));
    return says;
  };
  const Value::Map drawn = *before.values.at("cells_drawn").map();
  Value::Map other = drawn;
  other["checksum"] = Value("0123456789abcdef");
  EXPECT_NE(refusal(Value(other)).find("this version draws others by it (checksum"),
            std::string::npos);
  other["checksum"] = Value("0123456789abcdeg");
  EXPECT_NE(refusal(Value(other)).find("16 hexadecimal digits"), std::string::npos);
  other = drawn;
  other.erase("key");
  EXPECT_NE(refusal(Value(other)).find("without a key"), std::string::npos);
  EXPECT_NE(refusal(Value(3)).find("the state is damaged"), std::string::npos);
  State neither = before;
  neither.values.erase("cells_drawn");
  EXPECT_THROW(array.loadFrom(cpu(), neither, ""), StateError);
}

TEST(ComputedCellsOfStates, ATensorThatTheCellsLackIsRefused) {
  PulsedDevice array(cpu(), makeParams("SoftBounds", {{"reset_dtod", 0.1}}), 5, 9, kKey);
  State state;
  array.saveTo(cpu(), state, "");
  PulsedDevice other(cpu(), makeParams("SoftBounds"), 5, 9, kKey);
  EXPECT_THROW(other.loadFrom(cpu(), state, ""), StateError);
}

TEST(ComputedCellsOfOperations, DoNotCountForTheLimitOfScratchMemory) {
  const auto device = makeParams("SoftBounds", {{"cells", "computed"}});
  const PulsedDevice array(cpu(), device, 50, 90, kKey);
  Context context = cpu();
  ScratchOperation operation(context);
  const int64_t before = scratchLimit();
  setScratchLimit(20000);  // less than the cells take
  operation.setLimited(true);
  array.reserveCells(context);
  ScratchBuffer<float> other;
  EXPECT_NO_THROW(other.reserve(context, 4000));
  ScratchBuffer<float> more;
  EXPECT_THROW(more.reserve(context, 4000), ScratchLimitReached);
  setScratchLimit(before);
}

}  // namespace
}  // namespace pulsora::testing
