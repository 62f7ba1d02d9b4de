#include <gtest/gtest.h>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <vector>

#include "compounds/single.h"
#include "linalg/math_util.h"
#include "lrtt/parameters.h"
#include "tile/tile.h"
#include "util/pulse_test_util.h"
#include "util/state_test_util.h"

// Several threads of the caller: each may use tiles of its own, and any may use a tile behind a
// mutex. `make tsan` looks for races in these tests.

namespace pulsora::testing {
namespace {

constexpr int64_t kRows = 70;
constexpr int64_t kCols = 90;
constexpr int kThreads = 4;

TileConfig configOf(int number) {
  TileConfig config;
  if (number % 2 == 0) return config;
  LRTTParams lrtt;
  lrtt.rank = 4;
  lrtt.transfer_every = 7;
  config.compound = lrtt;
  return config;
}

Context twoThreads() {
  Context context;
  context.cpu.threads = 2;
  return context;
}

void step(Tile &tile, uint64_t number) {
  const Batch b = randomBatch(8, kCols, kRows, number);
  std::vector<float> y(8 * kRows);
  std::vector<float> dx(8 * kCols);
  tile.forward(b.xView(), rowMajor(y.data(), 8, kRows));
  tile.backward(b.dView(), rowMajor(dx.data(), 8, kCols));
  tile.update(b.xView(), b.dView(), 0.1f);
}

State trained(int number) {
  Tile tile(kRows, kCols, configOf(number), 3, static_cast<uint32_t>(number), twoThreads());
  for (uint64_t i = 0; i < 5; ++i) step(tile, i);
  return tile.state();
}

template <class Work>
void inThreads(const Work &work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back([&work, t] { work(t); });
  for (std::thread &thread : threads) thread.join();
}

TEST(CallerThreads, TilesOfTheirOwnDoNotDisturbOneAnother) {
  std::vector<State> states(kThreads);
  inThreads([&](int t) { states[static_cast<size_t>(t)] = trained(t); });
  for (int t = 0; t < kThreads; ++t)
    EXPECT_TRUE(sameState(states[static_cast<size_t>(t)], trained(t)));
}

// Threads of some programs have little stack: the workspaces of one product alone take 230 KB.
TEST(CallerThreads, ASmallStackIsEnough) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{192} << 10), 0);
  State state;
  pthread_t thread;
  const auto work = [](void *out) -> void * {
    *static_cast<State *>(out) = trained(1);
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, work, &state), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_TRUE(sameState(state, trained(1)));
}

TEST(CallerThreads, OneTileBehindAMutex) {
  Tile shared(kRows, kCols, configOf(1), 3, 0, twoThreads());
  Tile alone(kRows, kCols, configOf(1), 3, 0);
  std::mutex mutex;
  inThreads([&](int) {
    for (int i = 0; i < 5; ++i) {
      const std::lock_guard<std::mutex> guard(mutex);
      step(shared, 1);  // equal steps, so that their order does not matter
    }
  });
  for (int i = 0; i < 5 * kThreads; ++i) step(alone, 1);
  EXPECT_TRUE(sameState(shared.state(), alone.state()));
}

// Products share nothing but the workspaces of their threads.
TEST(CallerThreads, ProductsAtOnce) {
  const std::vector<float> a(200 * 300, 0.5f);
  const std::vector<float> b(300 * 100, 0.25f);
  inThreads([&](int) {
    std::vector<float> c(200 * 100);
    gemm(twoThreads(), 1.0f, rowMajor(a.data(), 200, 300), rowMajor(b.data(), 300, 100), 0.0f,
         rowMajor(c.data(), 200, 100));
    for (const float value : c) ASSERT_EQ(value, 37.5f);
  });
}

}  // namespace
}  // namespace pulsora::testing
