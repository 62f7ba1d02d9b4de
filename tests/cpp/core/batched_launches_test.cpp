#include "core/batched_launches.h"

#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

// Batching of the work of several objects; without a GPU.

namespace pulsora {
namespace {

std::vector<std::string> done;

struct Kind {
  int number;
};

/// Writes down the kind and the jobs of a launch, as "kind: job job".
void record(const void *kind, const void *const *jobs, int count) {
  std::string line = std::to_string(static_cast<const Kind *>(kind)->number) + ":";
  for (int i = 0; i < count; ++i)
    line += " " + std::to_string(*static_cast<const double *>(jobs[i])).substr(0, 3);
  done.push_back(line);
}
void launch(int kind, double job) { BatchedLaunches::enqueue(&record, Kind{kind}, job); }

struct BatchedLaunchesTest : ::testing::Test {
  void SetUp() override { done.clear(); }
  BatchedLaunches joined;
};
using Lines = std::vector<std::string>;

TEST_F(BatchedLaunchesTest, AloneAreMadeAtOnce) {
  EXPECT_FALSE(BatchedLaunches::areKept());
  launch(1, 0.5);
  EXPECT_EQ(done, (Lines{"1: 0.5"}));
}

TEST_F(BatchedLaunchesTest, EqualOnesBecomeOne) {
  joined.run(3, [](size_t i) {
    EXPECT_TRUE(BatchedLaunches::areKept());
    launch(1, static_cast<double>(i));
    launch(2, 0.5 + static_cast<double>(i));
    EXPECT_TRUE(done.empty());
  });
  EXPECT_EQ(done, (Lines{"1: 0.0 1.0 2.0", "2: 0.5 1.5 2.5"}));
}

TEST_F(BatchedLaunchesTest, AnObjectThatDoesMoreDelaysNobodyAfterwards) {
  joined.run(3, [](size_t i) {
    launch(1, static_cast<double>(i));
    if (i == 1) launch(7, 0.5);
    launch(2, static_cast<double>(i));
  });
  EXPECT_EQ(done, (Lines{"1: 0.0 1.0 2.0", "7: 0.5", "2: 0.0 1.0 2.0"}));
}

TEST_F(BatchedLaunchesTest, OtherWorkKeepsItsPlace) {
  joined.run(2, [](size_t i) {
    launch(1, static_cast<double>(i));
    BatchedLaunches::enqueue([i] { done.push_back("own " + std::to_string(i)); });
    launch(2, static_cast<double>(i));
  });
  EXPECT_EQ(done, (Lines{"1: 0.0 1.0", "own 0", "own 1", "2: 0.0 1.0"}));
}

TEST_F(BatchedLaunchesTest, WhatIsKeptIsSentBeforeAWait) {
  joined.run(2, [](size_t i) {
    launch(1, static_cast<double>(i));
    if (i == 1) BatchedLaunches::sendKept();
    launch(2, static_cast<double>(i));
  });
  EXPECT_EQ(done, (Lines{"1: 0.0 1.0", "2: 0.0", "2: 1.0"}));
}

TEST_F(BatchedLaunchesTest, AnErrorKeepsTheWorkBeforeIt) {
  const auto failing = [](size_t i) {
    launch(1, static_cast<double>(i));
    if (i == 1) throw std::runtime_error("stop");
  };
  EXPECT_THROW(joined.run(3, failing), std::runtime_error);
  EXPECT_EQ(done, (Lines{"1: 0.0 1.0"}));
  EXPECT_FALSE(BatchedLaunches::areKept());
  joined.run(1, [](size_t) { launch(3, 4.0); });
  EXPECT_EQ(done.back(), "3: 4.0");
}

}  // namespace
}  // namespace pulsora
