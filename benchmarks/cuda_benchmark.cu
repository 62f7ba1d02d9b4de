// Speed of a tile on the GPU: medians of CUDA events, in microseconds. Before a case is timed its
// weights after one step are compared with the CPU's. Usage: rpucuda_cuda_benchmarks [output.json
// [part of a case's name]]

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compounds/single.h"
#include "cuda/core/check.cuh"
#include "lrtt/parameters.h"
#include "numerics/random.h"
#include "storage/state.h"
#include "tile/step_graph.h"
#include "tile/tile.h"

namespace pulsora {
namespace {

constexpr int64_t kBatch = 64;
constexpr float kLearningRate = 0.01f;
constexpr float kAdapterLearningRate = 0.001f;  // times the adapter's alpha, 5 to 32

struct Result {
  std::string name;
  double value;
  double host;
  double reference;
  std::string unit;
};

Context gpu() {
  static cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    PULSORA_CUDA_CHECK(cudaStreamCreate(&made));
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
    values[i] =
        size * (2.0f * uniform(draw(makeKey(11, stream, 0), Purpose::UserDraw, i, 0).v[0]) - 1.0f);
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

/// A StepGraph on a GPU; nothing on the CPU.
struct Graph {
  explicit Graph(const Context &context) {
    if (!context.onCpu()) graph = std::make_unique<StepGraph>(context);
  }
  void begin() { graph->begin(); }
  void end() { graph->end(); }
  std::unique_ptr<StepGraph> graph;
};

/// A tile on one backend with a mini-batch for it.
struct Rig {
  Rig(const Context &context_, const TileConfig &config, int64_t size, float gradient,
      int batches = 1)
      : context(context_),
        tile(size, size, config, 3, 0, context),
        graph(context),
        y(context, kBatch, size, uniformValues(kBatch * size, 0.0f, 3)) {
    for (int i = 0; i < batches; ++i) {
      const auto stream = static_cast<uint32_t>(10 * i);
      x.emplace_back(context, kBatch, size, uniformValues(kBatch * size, 1.0f, stream + 1));
      d.emplace_back(context, kBatch, size, uniformValues(kBatch * size, gradient, stream + 2));
    }
    const Matrix w(context, size, size,
                   uniformValues(size * size, 1.0f / std::sqrt(static_cast<float>(size)), 4));
    tile.setWeights(w.view);
  }
  void forward() { tile.forward(x[turn].view, y.view); }
  void backward() { tile.backward(d[turn].view, y.view); }
  // Descends and ascends in turn, so that the weights do not drift. (An adapter's weights would; it
  // is re-initialised for each repetition.)
  void update() {
    tile.update(x[turn].view, d[turn].view, rate, BatchEnd::Later);
    if (alternates) rate = -rate;
  }
  void step() {
    forward();
    backward();
    update();
    tile.endBatch(kLearningRate);
    turn = (turn + 1) % x.size();
  }
  void stepAsGraph() {
    graph.begin();
    step();
    graph.end();
  }

  Context context;
  Tile tile;
  Graph graph;
  std::vector<Matrix> x, d;  // mini-batches, taken in turn by steps
  Matrix y;
  size_t turn = 0;
  float rate = kLearningRate;
  bool alternates = true;
};

struct Time {
  double gpu;   // microseconds on the stream
  double host;  // microseconds until the call returns
};

/// Medians over repetitions of the mean time of a few successive calls; prepare() runs before each
/// repetition.
Time measure(const Context &context, const std::function<void()> &prepare,
             const std::function<void()> &call, int calls) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kRepetitions = 21;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  PULSORA_CUDA_CHECK(cudaEventCreate(&start));
  PULSORA_CUDA_CHECK(cudaEventCreate(&stop));
  for (int n = 0; n < calls; ++n) call();
  std::vector<double> gpuTimes, hostTimes;
  for (size_t repetition = 0; repetition < kRepetitions; ++repetition) {
    prepare();
    PULSORA_CUDA_CHECK(cudaStreamSynchronize(streamOf(context)));
    const auto begin = Clock::now();
    PULSORA_CUDA_CHECK(cudaEventRecord(start, streamOf(context)));
    for (int n = 0; n < calls; ++n) call();
    PULSORA_CUDA_CHECK(cudaEventRecord(stop, streamOf(context)));
    hostTimes.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
                        calls);
    PULSORA_CUDA_CHECK(cudaEventSynchronize(stop));
    float milliseconds = 0.0f;
    PULSORA_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    gpuTimes.push_back(1000.0 * static_cast<double>(milliseconds) / calls);
  }
  PULSORA_CUDA_CHECK(cudaEventDestroy(start));
  PULSORA_CUDA_CHECK(cudaEventDestroy(stop));
  for (auto *times : {&gpuTimes, &hostTimes}) {
    std::nth_element(times->begin(), times->begin() + kRepetitions / 2, times->end());
  }
  return {gpuTimes[kRepetitions / 2], hostTimes[kRepetitions / 2]};
}

DeviceParams deviceOf(const std::string &model, const std::string &noiseMerge = "none") {
  return DeviceParams::read(
      Value(Value::Map{
          {"model", Value(model)}, {"dw_min", Value(0.001)}, {"noise_merge", Value(noiseMerge)}}),
      "device");
}

TileConfig singleConfig(const std::string &model, const std::string &noiseMerge = "none") {
  SingleParams single;
  single.device = deviceOf(model, noiseMerge);
  TileConfig config;
  config.compound = single;
  return config;
}

TileConfig lrttConfig(int rank, int64_t every, TransferMode mode = TransferMode::Lossless) {
  LRTTParams lrtt;
  lrtt.visible = lrtt.fast = deviceOf("SoftBounds");
  lrtt.rank = rank;
  lrtt.transfer_every = every;
  // The settings of earlier timings.
  lrtt.ab_lr_scale = LrScale::Alpha;
  lrtt.reinit = Reinit::Kaiming;
  lrtt.transfer_mode = mode;
  TileConfig config;
  config.compound = lrtt;
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
  /// Cases whose name contains `wanted`.
  explicit Benchmark(std::string wanted) : wanted_(std::move(wanted)) {}

  void updates() {
    for (const char *model : {"ConstantStep", "SoftBounds", "ExpStep"}) {
      updatesOf(message(model), singleConfig(model), "");
    }
    for (const char *model : {"ConstantStep", "SoftBounds"})
      updatesOf(model, singleConfig(model, "batch"), ", noise_merge=batch");
  }

  void reads() {
    for (const int64_t size : {512, 1024, 4096}) {
      const TileConfig config = singleConfig("ConstantStep");
      time(message("forward ", size), config, size, 1.0f, &Rig::forward, 20);
      time(message("backward ", size), config, size, 1.0f, &Rig::backward, 20);
      time(message("forward LRTT K=16 ", size), lrttConfig(16, 0), size, 1.0f, &Rig::forward, 20);
      time(message("backward LRTT K=16 ", size), lrttConfig(16, 0), size, 1.0f, &Rig::backward, 20);
      TileConfig narrow = config;
      narrow.forward.out_bound = 0.5f;
      time(message("forward beyond the ADC ", size), narrow, size, 1.0f, &Rig::forward, 10);
    }
  }

  void steps() {
    for (const int64_t size : {512, 4096}) {
      time(message("step ConstantStep ", size, " sparse"), singleConfig("ConstantStep"), size,
           0.01f, &Rig::step, 10);
    }
    for (const int64_t size : {512, 1024, 4096}) {
      const std::string name = message("step LRTT K=8 ", size);
      time(name + " without transfers", lrttConfig(8, 0), size, 0.01f, &Rig::step, 10);
      // As many pulse trains as the adapter's values need, or one per component.
      time(name + " lossless transfer every 10", lrttConfig(8, 10), size, 0.01f, &Rig::step, 10);
      const TileConfig once = lrttConfig(8, 10, TransferMode::Single);
      time(name + " transfer every 10", once, size, 0.01f, &Rig::step, 10);
      time(name + " transfer every 10, as a graph", once, size, 0.01f, &Rig::stepAsGraph, 10);
    }
  }

  void sizes() {
    using Clock = std::chrono::steady_clock;
    const std::string name = "construction LRTT K=16 4096";
    if (!isWanted(name)) return;
    {
      const Tile warm(64, 64, lrttConfig(16, 0), 1, 0, gpu());
    }
    const auto start = Clock::now();
    const Tile tile(4096, 4096, lrttConfig(16, 0), 1, 0, gpu());
    PULSORA_CUDA_CHECK(cudaStreamSynchronize(streamOf(gpu())));
    const double milliseconds =
        std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    results_.push_back({name, milliseconds, 0.0, referenceOf(name), "ms"});
    const double bytes = static_cast<double>(*tile.statistics().at("memory_bytes").integer());
    results_.push_back({"memory LRTT K=16 4096", bytes / 1e6, 0.0, 420, "MB"});
  }

  int report(const char *path) const {
    for (const Result &r : results_) {
      std::printf("%-40s %9.1f %s", r.name.c_str(), r.value, r.unit.c_str());
      if (r.host > 0) std::printf("  host %7.1f", r.host);
      if (r.reference > 0) std::printf("  (%.0f, x%.2f)", r.reference, r.value / r.reference);
      std::printf("\n");
    }
    if (path) write(path);
    return failed_ ? 1 : 0;
  }

 private:
  void updatesOf(const std::string &model, const TileConfig &config, const std::string &setting) {
    for (const int64_t size : {512, 4096}) {
      for (const bool sparse : {true, false}) {
        const float gradient = sparse ? 0.01f : 1.0f;
        const std::string name =
            message("update ", model, ' ', size, sparse ? " sparse" : " dense", setting);
        if (!isWanted(name) ||
            !isRight(name, sameUpdate(config, size <= 512 ? size : 1031, gradient)))
          continue;
        time(name, config, size, gradient, &Rig::update, size <= 512 ? 20 : 4);
      }
    }
  }

  bool isWanted(const std::string &name) const { return name.find(wanted_) != std::string::npos; }

  bool isRight(const std::string &name, bool right) {
    if (!right) std::printf("%s: the weights are not those of the CPU\n", name.c_str());
    failed_ |= !right;
    return right;
  }

  void time(const std::string &name, const TileConfig &config, int64_t size, float gradient,
            void (Rig::*call)(), int calls) {
    if (!isWanted(name)) return;
    const bool restarts =
        config.compound.model().kind == "lrtt" && (call == &Rig::step || call == &Rig::stepAsGraph);
    Rig rig(gpu(), config, size, gradient, restarts ? calls : 1);
    const State fresh = rig.tile.state();
    if (restarts) {
      rig.alternates = false;
      rig.rate = kAdapterLearningRate;
    }
    const Time t = measure(
        rig.context,
        [&] {
          if (!restarts) return;
          rig.tile.loadState(fresh);
          rig.turn = 0;
        },
        [&] { (rig.*call)(); }, calls);
    results_.push_back({name, t.gpu, t.host, referenceOf(name), "us"});
  }

  void write(const char *path) const {
    std::ofstream out(path);
    cudaDeviceProp properties{};
    PULSORA_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    out << "{\"device\": \"" << properties.name << "\", \"batch\": " << kBatch
        << ", \"results\": [\n";
    for (size_t i = 0; i < results_.size(); ++i) {
      const Result &r = results_[i];
      out << "  {\"name\": \"" << r.name << "\", \"value\": " << r.value << ", \"unit\": \""
          << r.unit << "\", \"host\": " << r.host << ", \"reference\": " << r.reference
          << (i + 1 < results_.size() ? "},\n" : "}\n");
    }
    out << "]}\n";
  }

  /// The fastest known time elsewhere, or the target; 0 if there is none.
  static double referenceOf(const std::string &name) {
    static const std::map<std::string, double> kReferences = {
        {"update SoftBounds 4096 sparse", 330},
        {"update SoftBounds 4096 dense", 2300},
        {"update ConstantStep 4096 sparse", 300},
        {"update ConstantStep 4096 dense", 1900},
        {"update ExpStep 4096 dense", 9000},
        {"update ConstantStep 4096 dense, noise_merge=batch", 400},
        {"update SoftBounds 4096 dense, noise_merge=batch", 900},
        {"update SoftBounds 4096 sparse, noise_merge=batch", 200},
        {"update SoftBounds 512 sparse", 18},
        {"update SoftBounds 512 dense", 60},
        {"forward 512", 14},
        {"forward 4096", 75},
        {"backward 512", 12},
        {"backward 4096", 75},
        {"step ConstantStep 512 sparse", 45},
        {"step ConstantStep 4096 sparse", 420},
        {"step LRTT K=8 512 transfer every 10", 60},
        {"step LRTT K=8 1024 transfer every 10", 70},
        {"step LRTT K=8 4096 transfer every 10", 260},
        {"construction LRTT K=16 4096", 50}};
    const auto found = kReferences.find(name);
    return found == kReferences.end() ? 0.0 : found->second;
  }

  std::string wanted_;
  std::vector<Result> results_;
  bool failed_ = false;
};

}  // namespace
}  // namespace pulsora

int main(int argc, char **argv) {
  if (pulsora::cudaDeviceCount() == 0) {
    std::printf("no GPU\n");
    return 0;
  }
  pulsora::Benchmark benchmark(argc > 2 ? argv[2] : "");
  benchmark.updates();
  benchmark.reads();
  benchmark.steps();
  benchmark.sizes();
  return benchmark.report(argc > 1 ? argv[1] : nullptr);
}
