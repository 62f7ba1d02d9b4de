// Speed of a tile on the GPU: medians of CUDA events, in microseconds. Before a case is timed its weights after one step
// are compared with the CPU's. Usage: rpucuda_cuda_benchmarks [output.json]

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/random.h"
#include "cuda/check.cuh"
#include "state.h"
#include "tile.h"

namespace RPU {
namespace {

constexpr int64_t kBatch = 64;
constexpr float kLearningRate = 0.01f;

struct Result {
  std::string name;
  double value;
  double reference;  // the fastest known elsewhere, or a target; 0 if there is none
  std::string unit;
};

Context gpu() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    RPU_CUDA(cudaStreamCreate(&made));
    return made;
  }();
  Context context;
  context.backend = Backend::Cuda;
  context.stream = stream;
  return context;
}

Context cpu() {
  Context context;
  context.cpu.threads = 16;
  return context;
}

/// Uniform in (-size, size).
std::vector<float> uniformValues(int64_t count, float size, uint32_t stream) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = size * (2.0f * uniform(draw(makeKey(11, stream, 0), Purpose::UserDraw, i, 0).v[0]) - 1.0f);
  }
  return values;
}

struct Matrix {
  Matrix(const Context &context, int64_t rows, int64_t cols, const std::vector<float> &host)
      : values(context, rows * cols), view(rowMajor(values.data(), rows, cols)) {
    detail::copyFromHost(context, values.data(), host.data(), values.bytes());
  }
  Buffer<float> values;
  MatrixView<float> view;
};

/// A tile on one backend with a mini-batch for it.
struct Rig {
  Rig(const Context &context_, const TileConfig &config, int64_t size, float gradient)
      : context(context_),
        tile(size, size, config, 3, 0, context),
        x(context, kBatch, size, uniformValues(kBatch * size, 1.0f, 1)),
        d(context, kBatch, size, uniformValues(kBatch * size, gradient, 2)),
        y(context, kBatch, size, uniformValues(kBatch * size, 0.0f, 3)) {
    const Matrix w(context, size, size, uniformValues(size * size, 1.0f / std::sqrt(static_cast<float>(size)), 4));
    tile.setWeights(w.view);
  }
  void forward() { tile.forward(x.view, y.view); }
  void backward() { tile.backward(d.view, y.view); }
  void update() { tile.update(x.view, d.view, kLearningRate); }
  void step() {
    forward();
    backward();
    update();
    tile.postUpdate(kLearningRate);
  }

  Context context;
  Tile tile;
  Matrix x, d, y;
};

/// Median over repetitions of the mean over a few calls that follow one another.
double microseconds(const Context &context, const std::function<void()> &call, int calls) {
  constexpr int kRepetitions = 21;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  RPU_CUDA(cudaEventCreate(&start));
  RPU_CUDA(cudaEventCreate(&stop));
  for (int n = 0; n < calls; ++n) call();
  std::vector<float> times;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    RPU_CUDA(cudaEventRecord(start, streamOf(context)));
    for (int n = 0; n < calls; ++n) call();
    RPU_CUDA(cudaEventRecord(stop, streamOf(context)));
    RPU_CUDA(cudaEventSynchronize(stop));
    float milliseconds = 0.0f;
    RPU_CUDA(cudaEventElapsedTime(&milliseconds, start, stop));
    times.push_back(1000.0f * milliseconds / static_cast<float>(calls));
  }
  RPU_CUDA(cudaEventDestroy(start));
  RPU_CUDA(cudaEventDestroy(stop));
  std::nth_element(times.begin(), times.begin() + kRepetitions / 2, times.end());
  return static_cast<double>(times[kRepetitions / 2]);
}

TileConfig singleConfig(const std::string &model) {
  TileConfig config;
  config.device = DeviceParams::read(Value(Value::Map{{"model", Value(model)}, {"dw_min", Value(0.001)}}), "device");
  return config;
}

TileConfig lrttConfig(int rank, int64_t every) {
  TileConfig config = singleConfig("SoftBounds");
  config.kind = TileConfig::Kind::LRTT;
  config.lrtt.visible = config.lrtt.fast = config.device;
  config.lrtt.rank = rank;
  config.lrtt.transfer_every = every;
  config.lrtt.units_in_mbatch = true;
  return config;
}

bool sameUpdate(const TileConfig &config, int64_t size, float gradient) {
  Rig host(cpu(), config, size, gradient);
  Rig device(gpu(), config, size, gradient);
  host.update();
  device.update();
  const State a = host.tile.state();
  const State b = device.tile.state();
  for (const auto &[name, tensor] : a.tensors) {
    if (tensor.bytes != b.tensors.at(name).bytes) return false;
  }
  return true;
}

class Benchmark {
 public:
  void updates() {
    for (const char *model : {"ConstantStep", "SoftBounds", "ExpStep"}) {
      for (const int64_t size : {512, 4096}) {
        for (const bool sparse : {true, false}) {
          const float gradient = sparse ? 0.01f : 1.0f;
          const TileConfig config = singleConfig(model);
          const std::string name = message("update ", model, ' ', size, sparse ? " sparse" : " dense");
          if (!check(name, sameUpdate(config, size <= 512 ? size : 1031, gradient))) continue;
          Rig rig(gpu(), config, size, gradient);
          add(name, microseconds(rig.context, [&] { rig.update(); }, size <= 512 ? 20 : 4), referenceOf(name));
        }
      }
    }
  }

  void reads() {
    for (const int64_t size : {512, 4096}) {
      Rig rig(gpu(), singleConfig("ConstantStep"), size, 1.0f);
      add(message("forward ", size), microseconds(rig.context, [&] { rig.forward(); }, 20), size == 512 ? 14 : 75);
      add(message("backward ", size), microseconds(rig.context, [&] { rig.backward(); }, 20), size == 512 ? 12 : 75);
      Rig adapted(gpu(), lrttConfig(16, 0), size, 1.0f);
      add(message("forward LRTT K=16 ", size), microseconds(adapted.context, [&] { adapted.forward(); }, 20), 0);
      Rig clipped(gpu(), singleConfig("ConstantStep"), size, 1.0f);
      const Matrix w(clipped.context, size, size, uniformValues(size * size, 0.3f, 5));
      clipped.tile.setWeights(w.view);
      add(message("forward beyond the ADC ", size), microseconds(clipped.context, [&] { clipped.forward(); }, 10), 0);
    }
  }

  void steps() {
    for (const int64_t size : {512, 4096}) {
      Rig rig(gpu(), singleConfig("ConstantStep"), size, 0.01f);
      add(message("step ConstantStep ", size, " sparse"), microseconds(rig.context, [&] { rig.step(); }, 10),
          size == 512 ? 45 : 420);
    }
    for (const int64_t size : {512, 1024, 4096}) {
      const double reference = size == 512 ? 60 : (size == 1024 ? 70 : 260);
      for (const int64_t every : {0, 10}) {
        Rig rig(gpu(), lrttConfig(8, every), size, 0.01f);
        add(message("step LRTT K=8 ", size, every ? " transfer every 10" : " without transfers"),
            microseconds(rig.context, [&] { rig.step(); }, 10), every ? reference : 0);
      }
    }
  }

  void sizes() {
    using Clock = std::chrono::steady_clock;
    { const Tile warm(64, 64, lrttConfig(16, 0), 1, 0, gpu()); }
    const auto start = Clock::now();
    const Tile tile(4096, 4096, lrttConfig(16, 0), 1, 0, gpu());
    RPU_CUDA(cudaStreamSynchronize(streamOf(gpu())));
    const double milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    results_.push_back({"construction LRTT K=16 4096", milliseconds, 50, "ms"});
    const double bytes = static_cast<double>(*tile.statistics().at("memory_bytes").integer());
    results_.push_back({"memory LRTT K=16 4096", bytes / 1e6, 420, "MB"});
  }

  int report(const char *path) const {
    for (const Result &r : results_) {
      std::printf("%-44s %10.1f %s", r.name.c_str(), r.value, r.unit.c_str());
      if (r.reference > 0) std::printf("  (%.0f, x%.2f)", r.reference, r.value / r.reference);
      std::printf("\n");
    }
    if (path) {
      std::ofstream out(path);
      cudaDeviceProp properties{};
      RPU_CUDA(cudaGetDeviceProperties(&properties, 0));
      out << "{\"device\": \"" << properties.name << "\", \"batch\": " << kBatch << ", \"results\": [\n";
      for (size_t i = 0; i < results_.size(); ++i) {
        const Result &r = results_[i];
        out << "  {\"name\": \"" << r.name << "\", \"value\": " << r.value << ", \"unit\": \"" << r.unit
            << "\", \"reference\": " << r.reference << (i + 1 < results_.size() ? "},\n" : "}\n");
      }
      out << "]}\n";
    }
    return failed_ ? 1 : 0;
  }

 private:
  void add(const std::string &name, double time, double reference) { results_.push_back({name, time, reference, "us"}); }

  bool check(const std::string &name, bool right) {
    if (!right) std::printf("%s: the weights are not those of the CPU\n", name.c_str());
    failed_ |= !right;
    return right;
  }

  static double referenceOf(const std::string &name) {
    if (name == "update SoftBounds 4096 sparse") return 330;
    if (name == "update SoftBounds 4096 dense") return 2300;
    if (name == "update ConstantStep 4096 sparse") return 300;
    if (name == "update ConstantStep 4096 dense") return 1900;
    if (name == "update ExpStep 4096 dense") return 9000;
    if (name == "update SoftBounds 512 sparse") return 18;
    if (name == "update SoftBounds 512 dense") return 60;
    return 0;
  }

  std::vector<Result> results_;
  bool failed_ = false;
};

}  // namespace
}  // namespace RPU

int main(int argc, char **argv) {
  if (RPU::cudaDeviceCount() == 0) {
    std::printf("no GPU\n");
    return 0;
  }
  RPU::Benchmark benchmark;
  benchmark.updates();
  benchmark.reads();
  benchmark.steps();
  benchmark.sizes();
  return benchmark.report(argc > 1 ? argv[1] : nullptr);
}
