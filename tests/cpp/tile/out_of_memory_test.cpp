#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compounds/compound_model.h"
#include "linalg/math_util.h"
#include "tile/tile.h"
#include "tile/tile_adapter.h"
#include "util/failing_new.h"
#include "util/pulse_test_util.h"
#include "util/state_test_util.h"

// Memory runs out at every allocation of every operation of a tile: the tile is then unchanged, and
// the repeated operation gives the same bits.

namespace pulsora::testing {
namespace {

constexpr int64_t kRows = 10;
constexpr int64_t kCols = 12;
constexpr int64_t kRank = 3;
constexpr int64_t kBatch = 9;  // of an operation; more than of any call before it

TileConfig configOf(Value::Map map, const char *cells) {
  const Value device(Value::Map{{"model", "SoftBounds"},
                                {"dw_min", 0.002},
                                {"lifetime", 50.0},
                                {"diffusion", 0.002},
                                {"write_noise_std", 0.5},
                                {"cells", cells}});
  const std::string kind = *map.at("kind").text();
  for (const FieldInfo &field : compoundModel(kind, "kind").fields) {
    if (field.type == "device") map.try_emplace(field.name, device);
    if (field.name == "rank") map.try_emplace(field.name, Value(kRank));
  }
  return readParams<TileConfig>(Value(std::move(map)), "");
}

struct Named {
  const char *name;
  Value::Map map;
  const char *cells = "stored";
};

Value io(Value::Map map) { return {std::move(map)}; }

// A read with every buffer that reads have, and a running mean.
Value fullIo() {
  return io({{"noise_management", "average_abs_max"},
             {"nm_decay", 0.1},
             {"ir_drop", 1.0},
             {"w_noise", 0.02},
             {"w_noise_type", "pcm_read"}});
}

std::vector<Named> configurations() {
  const Value trains(Value::Map{{"update_bl_management", false}, {"desired_bl", 40}});
  return {
      {"single", {{"kind", "single"}}},
      {"single, average", {{"kind", "single"}, {"forward", fullIo()}, {"backward", fullIo()}}},
      {"ideal", {{"kind", "ideal"}}},
      {"rank 0", {{"kind", "lrtt"}, {"rank", 0}}},
      {"single, computed", {{"kind", "single"}}, "computed"},
      {"lrtt, computed", {{"kind", "lrtt"}, {"transfer_every", 4}}, "computed"},
      {"accumulated, computed",
       {{"kind", "lrtt"}, {"transfer_every", 7}, {"ab_update", "accumulated"}},
       "computed"},
      {"accumulated", {{"kind", "lrtt"}, {"transfer_every", 7}, {"ab_update", "accumulated"}}},
      {"lrtt", {{"kind", "lrtt"}, {"transfer_every", 4}}},
      {"full", {{"kind", "lrtt"}, {"transfer_every", "auto"}}},
      {"read", {{"kind", "lrtt"}, {"transfer_every", 4}, {"verify_read", "analog"}}},
      {"average",
       {{"kind", "lrtt"},
        {"transfer_every", 4},
        {"transfer_read", "analog"},
        {"forward", fullIo()},
        {"backward", fullIo()}}},
      {"average, in blocks",
       {{"kind", "lrtt"},
        {"transfer_every", 4},
        {"transfer_read", "analog"},
        {"adapter_span", "layer"},
        {"max_input_size", 3},
        {"max_output_size", 4},
        {"forward", fullIo()},
        {"backward", fullIo()}}},
      {"mini-batches, orthogonal",
       {{"kind", "lrtt"},
        {"transfer_every", 2},
        {"units_in_mbatch", true},
        {"reinit", "orthogonal"},
        {"projection", "exact"}}},
      {"pulsed re-init, svd",
       {{"kind", "lrtt"}, {"transfer_every", 5}, {"reinit", "svd"}, {"reinit_write", "pulsed"}}},
      {"decay, digital transfer",
       {{"kind", "lrtt"},
        {"transfer_every", 4},
        {"reinit", "decay"},
        {"reinit_write", "pulsed"},
        {"transfer_mode", "exact"}}},
      {"reuse, long trains",
       {{"kind", "lrtt"}, {"transfer_every", 11}, {"projection", "reuse"}, {"update", trains}}},
      {"shared, swapped, two passes",
       {{"kind", "lrtt"},
        {"transfer_every", 4},
        {"inject_io", "shared"},
        {"swap_xd", true},
        {"transfer_mode", "single"},
        {"forward", fullIo()},
        {"update", Value(Value::Map{{"pulse_type", "stochastic"}})}}},
      {"levels",
       {{"kind", "lrtt"},
        {"transfer_every", 4},
        {"reinit", "keep_b"},
        {"update", Value(Value::Map{{"pulse_type", "mean_count"}})}}},
      {"digital",
       {{"kind", "lrtt"},
        {"transfer_every", 4},
        {"update", Value(Value::Map{{"pulse_type", "none_with_device"}})}}},
  };
}

using Numbers = std::vector<float>;

/// A tile, with inputs and outputs of its calls allocated before.
struct Bench {
  Tile tile;
  Batch batch = randomBatch(kBatch, kCols, kRows, 5);
  Batch more = randomBatch(kRank, kRows, kCols, 6);  // matrices [K, rows] and [K, columns]
  Batch gates = randomBatch(kBatch, kRank, kRank, 7);
  Numbers y = Numbers(kBatch * kRows), dx = Numbers(kBatch * kCols);
  Numbers read = Numbers(kBatch * kRank), gradient = Numbers(kBatch * kRank);
  Numbers weights = Numbers(kRows * kCols, 0.01f);
  State saved;

  explicit Bench(const TileConfig &config) : tile(kRows, kCols, config, 3) {
    if (tile.hasAdapter() && svd(config)) tile.adapter().setReinitVectors(bShape());
    step(2);
    saved = tile.state();
    step(1);
    forward();  // for the update that may come
    backward();
  }

  static bool svd(const TileConfig &config) {
    return config.compound.write().map()->at("reinit") == Value("svd");
  }
  MatrixView<const float> bShape() const {
    return tile.array("fast_b").cols() == kCols ? more.dView() : more.xView();
  }
  MatrixView<float> yView() { return rowMajor(y.data(), kBatch, kRows); }
  MatrixView<float> dxView() { return rowMajor(dx.data(), kBatch, kCols); }
  MatrixView<float> readView() { return rowMajor(read.data(), kBatch, kRank); }
  MatrixView<float> gradientView() { return rowMajor(gradient.data(), kBatch, kRank); }
  MatrixView<float> weightsView() { return rowMajor(weights.data(), kRows, kCols); }

  // A mini-batch of some samples.
  void step(int64_t samples) {
    tile.forward(batch.xRows(0, samples), yView().block(0, 0, samples, kRows));
    tile.backward(batch.dRows(0, samples), dxView().block(0, 0, samples, kCols));
    tile.update(batch.xRows(0, samples), batch.dRows(0, samples), 0.1f);
  }
  void forward() { tile.forward(batch.xView(), yView()); }
  void backward() { tile.backward(batch.dView(), dxView()); }
};

struct Operation {
  const char *name;
  std::function<void(Bench &)> run;
};

std::vector<Operation> operations() {
  return {
      {"forward", [](Bench &b) { b.forward(); }},
      {"backward", [](Bench &b) { b.backward(); }},
      {"update",
       [](Bench &b) { b.tile.update(b.batch.xView(), b.batch.dView(), 0.1f, BatchEnd::Later); }},
      {"end_batch", [](Bench &b) { b.tile.endBatch(0.1f); }},
      {"get_weights", [](Bench &b) { b.tile.getWeights(b.weightsView()); }},
      {"set_weights", [](Bench &b) { b.tile.setWeights(b.weightsView()); }},
      {"get_array", [](Bench &b) { b.tile.getArray("visible", b.weightsView()); }},
      {"set_array", [](Bench &b) { b.tile.setArray("visible", b.weightsView()); }},
      {"set fast_b", [](Bench &b) { b.tile.setArray("fast_b", b.bShape()); }},
      {"reset", [](Bench &b) { b.tile.resetColumns("visible", 1, 3, 0.5f); }},
      {"describe", [](Bench &b) { b.tile.array("visible").describeCells(b.tile.context()); }},
      {"explain", [](Bench &b) { b.tile.explain(b.batch.xView(), b.batch.dView(), 0.1f); }},
      {"statistics", [](Bench &b) { b.tile.statistics(); }},
      {"state", [](Bench &b) { b.tile.state(); }},
      {"load_state", [](Bench &b) { b.tile.loadState(b.saved); }},
      {"gated forward",
       [](Bench &b) {
         b.tile.adapter().forward(b.batch.xView(), b.gates.xView(), b.yView(), b.readView());
       }},
      {"gated backward",
       [](Bench &b) {
         b.tile.adapter().backward(b.batch.dView(), b.gates.xView(), b.gates.dView(), b.dxView(),
                                   b.gradientView());
       }},
      {"gated update",
       [](Bench &b) {
         b.tile.adapter().update(b.batch.xView(), b.batch.dView(), b.gates.xView(), 0.1f,
                                 BatchEnd::Later);
       }},
      {"transfer", [](Bench &b) { b.tile.adapter().transfer(); }},
      {"re-init vectors", [](Bench &b) { b.tile.adapter().setReinitVectors(b.bShape()); }},
  };
}

// The points of one operation at which memory may run out; none if the tile has no such operation.
int64_t pointsOf(const TileConfig &config, const Operation &operation, FailingNew::Kind kind,
                 State &after) {
  Bench bench(config);
  int64_t points = 0;
  try {
    const FailingNew memory(kind, INT64_MAX);
    operation.run(bench);
    points = memory.count();
  } catch (const std::invalid_argument &) {
    return 0;
  }
  after = bench.tile.state();
  return points;
}

// Returns whether memory ran out: an operation may succeed without the memory that it asked for.
bool failAt(const TileConfig &config, const Operation &operation, FailingNew::Kind kind,
            int64_t point, const State &after) {
  Bench bench(config);
  const State before = bench.tile.state();
  bool threw = false;
  try {
    const FailingNew memory(kind, point);
    operation.run(bench);
  } catch (const OutOfMemoryError &) {
    threw = true;
  } catch (const std::bad_alloc &) {
    threw = true;
  }
  if (threw) {
    EXPECT_TRUE(sameState(before, bench.tile.state())) << "after the failure";
    operation.run(bench);
  }
  EXPECT_TRUE(sameState(after, bench.tile.state())) << "after the operation";
  return threw;
}

/// Every `stride`-th point of every operation, of every configuration.
void failEverywhere(int64_t stride) {
  int64_t points = 0;
  int64_t failures = 0;
  for (const Named &named : configurations()) {
    SCOPED_TRACE(named.name);
    const TileConfig config = configOf(named.map, named.cells);
    for (const Operation &operation : operations()) {
      SCOPED_TRACE(operation.name);
      for (const auto kind : {FailingNew::Kind::Once, FailingNew::Kind::FromThenOn}) {
        State after;
        const int64_t count = pointsOf(config, operation, kind, after);
        for (int64_t point = points % stride; point < count; point += stride) {
          failures += failAt(config, operation, kind, point, after);
          if (::testing::Test::HasFailure()) {
            FAIL() << "at allocation " << point << " of " << count
                   << (kind == FailingNew::Kind::Once ? "" : " and all later ones");
          }
        }
        points += count;
      }
    }
  }
  EXPECT_GT(points, 3000);
  EXPECT_GT(failures * stride, points * 9 / 10) << "of " << points << " points";
}

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define PULSORA_TEST_IS_SLOW
#endif
#endif
#ifdef PULSORA_TEST_IS_SLOW
constexpr int64_t kStride = 97;
#else
constexpr int64_t kStride = 23;
#endif

TEST(OutOfMemory, LeavesTheTileAsItWas) { failEverywhere(kStride); }

// `make nightly` runs this one.
TEST(OutOfMemory, DISABLED_LeavesTheTileAsItWasAtEveryPoint) { failEverywhere(1); }

// Products cannot fail for want of memory: a thread that has no workspace and gets none uses the
// process's.
TEST(OutOfMemory, DoesNotStopAProduct) {
  const std::vector<float> a(100 * 200, 0.5f);
  const std::vector<float> b(200 * 300, 0.25f);
  std::vector<float> c(100 * 300);
  Context context;
  context.cpu.threads = 2;
  int64_t failed = 0;
  std::thread([&] {
    const FailingNew memory(FailingNew::Kind::FromThenOn, 0);
    gemm(context, 1.0f, rowMajor(a.data(), 100, 200), rowMajor(b.data(), 200, 300), 0.0f,
         rowMajor(c.data(), 100, 300));
    failed = memory.failed();
  }).join();
  EXPECT_EQ(failed, 1);
  for (const float value : c) ASSERT_EQ(value, 25.0f);
}

}  // namespace
}  // namespace pulsora::testing
