#include "cases.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "array/device_model.h"
#include "array/pulsed_weight_updater.h"
#include "compounds/single.h"
#include "lrtt/parameters.h"
#include "tile/tile.h"

namespace pulsora::bench {
namespace {

constexpr float kLearningRate = 0.01f;
constexpr float kDenseGradient = 1.0f;    // about 2.5 pulses per weight and sample
constexpr float kSparseGradient = 0.01f;  // about 0.025
constexpr float kWeights =
    0.2f;  // initial weights within +-0.2: some cells in a hundred are at a bound
constexpr uint64_t kSeed = 11;

Context contextOf(Isa isa, int threads) {
  Context context;
  context.cpu.isa = isa;
  context.cpu.threads = threads;
  return context;
}

/// Uniform in (-size, size).
std::vector<float> uniformValues(int64_t count, float size, uint32_t stream) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        size *
        (2.0f * uniform(draw(makeKey(kSeed, stream, 0), Purpose::UserDraw, i, 0).v[0]) - 1.0f);
  }
  return values;
}

DeviceParams deviceOf(const std::string &model, bool merged = false) {
  return DeviceParams::read(
      Value::Map{{"model", Value(model)}, {"noise_merge", Value(merged ? "batch" : "none")}},
      "device");
}

void requireSame(const std::vector<float> &got, const std::vector<float> &expected,
                 const std::string &what) {
  if (std::memcmp(got.data(), expected.data(), expected.size() * sizeof(float)) != 0) {
    throw std::runtime_error(
        what + ": the result is not the bits of the plainest code, one sample at a time");
  }
}

/// A tile and some mini-batches that step() takes in turn.
struct Rig {
  Rig(const TileConfig &config, int64_t n, int64_t m, float gradient, const Context &context,
      int64_t batches = 1)
      : size(n),
        batch(m),
        rows(m * batches),
        tile(n, n, config, kSeed, 0, context),
        x(uniformValues(rows * n, 1.0f, 1)),
        d(uniformValues(rows * n, gradient, 2)),
        y(offset(m)),
        dx(offset(m)) {
    const std::vector<float> w = uniformValues(n * n, kWeights, 3);
    tile.setWeights(rowMajor(w.data(), n, n));
  }

  MatrixView<const float> xRows(int64_t first, int64_t count) const {
    return rowMajor(&x[offset(first)], count, size);
  }
  MatrixView<const float> dRows(int64_t first, int64_t count) const {
    return rowMajor(&d[offset(first)], count, size);
  }

  void forward(int64_t first, int64_t count) {
    tile.forward(xRows(first, count), rowMajor(&y[offset(first % batch)], count, size));
  }
  void backward(int64_t first, int64_t count) {
    tile.backward(dRows(first, count), rowMajor(&dx[offset(first % batch)], count, size));
  }
  /// The sign of the learning rate changes from run to run, so that weights do not drift.
  void update(int64_t first, int64_t count) {
    tile.update(xRows(first, count), dRows(first, count), lr, BatchEnd::Later);
  }
  void step() {
    forward(turn, batch);
    backward(turn, batch);
    update(turn, batch);
    tile.endBatch(lr);
    lr = -lr;
    turn = (turn + batch) % rows;
  }
  std::vector<float> results() const {
    std::vector<float> all(static_cast<size_t>(size * size));
    tile.getWeights(rowMajor(all.data(), size, size));
    all.insert(all.end(), y.begin(), y.end());
    all.insert(all.end(), dx.begin(), dx.end());
    return all;
  }

  int64_t size, batch, rows;
  Tile tile;
  std::vector<float> x, d, y, dx;
  float lr = kLearningRate;
  int64_t turn = 0;  // first row of the next step

 private:
  size_t offset(int64_t row) const { return static_cast<size_t>(row * size); }
};

using Pass = std::function<void(Rig &, int64_t first, int64_t count)>;
const Pass kForward = [](Rig &rig, int64_t first, int64_t count) { rig.forward(first, count); };
const Pass kBackward = [](Rig &rig, int64_t first, int64_t count) { rig.backward(first, count); };
const Pass kUpdate = [](Rig &rig, int64_t first, int64_t count) { rig.update(first, count); };
// The tenth mini-batch ends with a transfer.
const Pass kTenMiniBatches = [](Rig &rig, int64_t first, int64_t count) {
  for (int k = 0; k < 10 && first + count == rig.batch; ++k) rig.tile.endBatch(rig.lr);
};

/// Throws unless passes over whole batches give the bits of the reference (see Case). Merged noise
/// belongs to a whole batch, so that its reference takes `part` = m samples at a time.
void verifyPasses(const TileConfig &config, int64_t n, int64_t m, float gradient,
                  const Context &context, const std::vector<Pass> &passes, int64_t part = 1) {
  Rig plain(config, n, m, gradient, contextOf(Isa::V2, 1));
  Rig tested(config, n, m, gradient, context);
  for (const Pass &pass : passes) {
    for (int64_t s = 0; s < m; s += part) pass(plain, s, part);
    pass(tested, 0, m);
  }
  requireSame(tested.results(), plain.results(), config.compound.model().kind.c_str());
}

/// The forward pass must also be the product of fp64, up to the noise of the periphery.
void verifyProduct(const TileConfig &config, int64_t n, int64_t m, const Context &context) {
  Rig rig(config, n, m, 1.0f, context);
  rig.forward(0, m);
  const std::vector<float> w = rig.results();
  double squares = 0.0;
  for (int64_t s = 0; s < m; ++s) {
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0.0;
      for (int64_t j = 0; j < n; ++j) {
        sum += double{w[static_cast<size_t>(i * n + j)]} *
               double{rig.x[static_cast<size_t>(s * n + j)]};
      }
      squares += std::pow(sum - double{rig.y[static_cast<size_t>(s * n + i)]}, 2);
    }
  }
  // Default periphery: output noise 0.06, 7-bit inputs and 9-bit outputs of a range of 12.
  const double deviation = std::sqrt(squares / static_cast<double>(m * n));
  if (!(deviation > 0.03 && deviation < 0.12)) {
    throw std::runtime_error("forward: deviates from the fp64 product by " +
                             std::to_string(deviation));
  }
}

TileConfig singleTile(const std::string &device, bool merged = false) {
  TileConfig config;
  SingleParams single;
  single.device = deviceOf(device, merged);
  config.compound = single;
  return config;
}

TileConfig lrttTile(int rank) {
  TileConfig config;
  LRTTParams lrtt;
  lrtt.rank = rank;
  lrtt.visible = deviceOf("SoftBounds");
  lrtt.fast = deviceOf("ConstantStep");
  lrtt.transfer_every = 10;
  lrtt.units_in_mbatch = true;
  // The settings of earlier timings.
  lrtt.ab_lr_scale = LrScale::Alpha;
  lrtt.transfer_mode = TransferMode::Lossless;
  lrtt.reinit = Reinit::Kaiming;
  config.compound = lrtt;
  return config;
}

struct Shape {
  int64_t n, m;
  Isa isa;
  int threads;
};

/// An update; `merged` is noise_merge = "batch".
Case updateCase(const std::string &device, bool dense, bool merged, const Shape &s) {
  struct Bench {
    Bench(const DeviceParams &params, float gradient, const Shape &shape)
        : context(contextOf(shape.isa, shape.threads)),
          array(context, params, shape.n, shape.n, makeKey(kSeed, 0, 0)) {
      const std::vector<float> x = uniformValues(shape.m * shape.n, 1.0f, 1);
      const std::vector<float> d = uniformValues(shape.m * shape.n, gradient, 2);
      const std::vector<float> w = uniformValues(shape.n * shape.n, kWeights, 3);
      array.setWeights(context, rowMajor(w.data(), shape.n, shape.n), 0);
      for (int k = 0; k < 2; ++k) {  // there and back
        makers[k].makeWords(
            context, rowMajor(x.data(), shape.m, shape.n), rowMajor(d.data(), shape.m, shape.n),
            k ? -kLearningRate : kLearningRate, array.granularity(), {}, makeKey(kSeed, 0, 36),
            static_cast<uint64_t>(k) * static_cast<uint64_t>(shape.m));
      }
    }
    Context context;
    PulsedDevice array;
    BitLineMaker makers[2];
    int turn = 0;
  };
  const float gradient = dense ? kDenseGradient : kSparseGradient;
  const auto bench = std::make_shared<Bench>(deviceOf(device, merged), gradient, s);
  const std::string name = std::string(dense ? "update dense" : "update sparse");
  Case c{name + (merged ? ", merged" : ""), device, s.n, s.m, s.isa, s.threads, 1.0, {}, {}};
  c.verify = [=] {
    verifyPasses(singleTile(device, merged), s.n, s.m, gradient, bench->context, {kUpdate},
                 merged ? s.m : 1);
  };
  c.run = [bench] {
    bench->array.applyPulses(bench->context, bench->makers[bench->turn++ & 1].words());
  };
  return c;
}

Case wordsCase(bool dense, const Shape &s) {
  struct Bench {
    std::vector<float> x, d;
    BitLineMaker maker;
    uint64_t sample = 0;
  };
  const float gradient = dense ? kDenseGradient : kSparseGradient;
  const auto bench = std::make_shared<Bench>();
  bench->x = uniformValues(s.m * s.n, 1.0f, 1);
  bench->d = uniformValues(s.m * s.n, gradient, 2);
  const Context context = contextOf(s.isa, s.threads);
  const auto make = [=](const Context &where, Bench &b) {
    b.maker.makeWords(where, rowMajor<const float>(b.x.data(), s.m, s.n),
                      rowMajor<const float>(b.d.data(), s.m, s.n), kLearningRate, 0.001f, {},
                      makeKey(kSeed, 0, 36), b.sample);
    b.sample += static_cast<uint64_t>(s.m);
  };
  Case c{dense ? "words dense" : "words sparse", "-", s.n, s.m, s.isa, s.threads, 1.0, {}, {}};
  c.verify = [=] {
    Bench plain{bench->x, bench->d, {}, 0};
    Bench tested{bench->x, bench->d, {}, 0};
    make(contextOf(Isa::V2, 1), plain);
    make(context, tested);
    const PulseWords &a = tested.maker.words();
    const PulseWords &b = plain.maker.words();
    const auto words = static_cast<size_t>(b.layout->words(s.m) * s.n) * sizeof(uint32_t);
    const auto differ = [&](const uint32_t *one, const uint32_t *other) {
      return std::memcmp(one, other, words) != 0;
    };
    if (differ(a.xBits, b.xBits) || differ(a.dBits, b.dBits) || differ(a.xSigns, b.xSigns) ||
        differ(a.dSigns, b.dSigns)) {
      throw std::runtime_error("words: not those of the plainest code");
    }
  };
  c.run = [=] { make(context, *bench); };
  return c;
}

enum class Step { Forward, Backward, Full };

Case tileCase(Step step, const std::string &device, bool dense, const Shape &s) {
  const float gradient = dense ? kDenseGradient : kSparseGradient;
  const TileConfig config = singleTile(device);
  const Context context = contextOf(s.isa, s.threads);
  const auto rig = std::make_shared<Rig>(config, s.n, s.m, gradient, context);
  const char *name =
      step == Step::Forward
          ? "forward"
          : (step == Step::Backward ? "backward"
                                    : (dense ? "full step dense" : "full step sparse"));
  Case c{name, device, s.n, s.m, s.isa, s.threads, 1.0, {}, {}};
  c.verify = [=] {
    const std::vector<Pass> passes[] = {{kForward}, {kBackward}, {kForward, kBackward, kUpdate}};
    verifyPasses(config, s.n, s.m, gradient, context, passes[static_cast<int>(step)]);
    if (step == Step::Forward) verifyProduct(config, s.n, s.m, context);
  };
  c.run = [=] {
    if (step == Step::Forward) rig->forward(0, s.m);
    if (step == Step::Backward) rig->backward(0, s.m);
    if (step == Step::Full) rig->step();
  };
  return c;
}

/// Ten mini-batches and the transfer that follows them, stated per mini-batch. The drive is sparse:
/// under a dense drive A grows until every transfer takes transfer_max_trains pulse trains, unlike
/// in training.
Case lrttCase(int rank, const Shape &s) {
  constexpr float gradient = kSparseGradient;
  const TileConfig config = lrttTile(rank);
  const Context context = contextOf(s.isa, s.threads);
  // Repeated inputs would make A and transfers grow, unlike in training.
  const auto rig = std::make_shared<Rig>(config, s.n, s.m, gradient, context, 20);
  Case c{"LRTT step sparse, K = " + std::to_string(rank),
         "SoftBounds + ConstantStep",
         s.n,
         s.m,
         s.isa,
         s.threads,
         10.0,
         {},
         {}};
  c.verify = [=] {
    verifyPasses(config, s.n, s.m, gradient, context,
                 {kForward, kBackward, kUpdate, kTenMiniBatches});
  };
  c.run = [=] {
    for (int k = 0; k < 10; ++k) rig->step();
  };
  return c;
}

void addCases(std::vector<std::function<Case()>> &cases, const Shape &s, bool tiles) {
  for (const bool dense : {true, false}) {
    for (const char *device : {"ConstantStep", "SoftBounds"}) {
      for (const bool merged : {false, true})
        cases.push_back([=] { return updateCase(device, dense, merged, s); });
    }
    cases.push_back([=] { return wordsCase(dense, s); });
  }
  if (!tiles) return;
  cases.push_back([=] { return tileCase(Step::Forward, "SoftBounds", true, s); });
  cases.push_back([=] { return tileCase(Step::Backward, "SoftBounds", true, s); });
  for (const char *device : {"ConstantStep", "SoftBounds"}) {
    for (const bool dense : {true, false})
      cases.push_back([=] { return tileCase(Step::Full, device, dense, s); });
  }
  if (s.n != 512 || s.m != 64) return;
  for (const int rank : {8, 16}) cases.push_back([=] { return lrttCase(rank, s); });
}

}  // namespace

std::string Case::name() const {
  return operation + " | " + device + " | " + std::to_string(size) + " | batch " +
         std::to_string(batch) + " | " + isaName(isa) + " | " + std::to_string(threads);
}

std::vector<std::function<Case()>> allCases(bool quick) {
  std::vector<std::function<Case()>> cases;
  for (const int threads : {1, 2}) {
    for (const Isa isa : supportedIsas())
      addCases(cases, {512, 64, isa, threads}, isa == bestIsa());
  }
  if (quick) return cases;
  for (const int threads : {1, 2}) {
    for (const int64_t n : {256, 512, 1024}) {
      for (const int64_t m : {1, 16, 64}) {
        if (n != 512 || m != 64) addCases(cases, {n, m, bestIsa(), threads}, true);
      }
    }
  }
  return cases;
}

std::vector<Memory> memoryOfDevices() {
  constexpr int64_t n = 256;
  std::vector<Memory> rows;
  for (const DeviceModel &model : deviceModels()) {
    for (const bool all : {false, true}) {
      Value::Map map{{"model", Value(model.name)}};
      if (all) {
        for (const char *field : {"lifetime_dtod", "diffusion_dtod", "reset_dtod"})
          map[field] = Value(0.1);
        map["lifetime"] = Value(1000.0);
        map["diffusion"] = Value(1e-4);
        map["reset"] = Value(0.01);
      }
      const PulsedDevice array({}, DeviceParams::read(Value(map), "device"), n, n,
                               makeKey(kSeed, 0, 0));
      const bool constant = model.name == "ConstantStep";
      rows.push_back(
          {model.name + (all ? ", with spread decay, diffusion and reset" : ""),
           static_cast<double>(array.memoryBytes()) / static_cast<double>(n * n),
           constant && !all ? 16.0 : (constant || model.name == "SoftBounds" ? 24.0 : 0.0)});
    }
  }
  const auto bytes = [](const TileConfig &config) {
    const Value::Map statistics = Tile(n, n, config, kSeed).statistics();
    return static_cast<double>(*statistics.at("memory_bytes").integer());
  };
  const double adapter = (bytes(lrttTile(8)) - bytes(singleTile("SoftBounds"))) / (8.0 * 2.0 * n);
  rows.push_back({"LRTT, K = 8: bytes per cell of the adapter", adapter, 0.0});
  return rows;
}

}  // namespace pulsora::bench
