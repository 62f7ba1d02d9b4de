#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/scratch.h"
#include "cuda/core/check.cuh"
#include "cuda/core/memory.cuh"
#include "tile/training_graph.h"

namespace pulsora {
namespace {

// A training loop has a handful of shapes: with and without a transfer, of one layer or another.
constexpr size_t kMostShapes = 16;

/// The streams of a device's lanes. Never destroyed, because tiles free memory in these streams.
struct Lanes {
  std::mutex mutex;
  std::array<cudaStream_t, TrainingGraph::kLanes> streams{};

  static Lanes &of(int device) {
    static std::mutex mutex;
    static auto &all = *new std::map<int, Lanes>;  // outlives the driver
    const std::lock_guard<std::mutex> guard(mutex);
    Lanes &found = all[device];
    for (cudaStream_t &stream : found.streams) {
      if (!stream) PULSORA_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    return found;
  }
};

struct LaneCall {
  int lane;
  TrainingGraph::Call call;
};

/// The tile calls between two operations of the capturing library.
struct Group {
  cudaGraphNode_t place = nullptr;
  std::vector<LaneCall> calls;
  std::vector<int> lanes;  // each once; the first is captured, and the others branch off from it

  void add(int lane, TrainingGraph::Call call) {
    calls.push_back({lane, std::move(call)});
    if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) lanes.push_back(lane);
  }
};

/// A captured graph, while it is in use.
struct Captured {
  Captured() = default;
  ~Captured() {
    if (graph) cudaGraphDestroy(graph);
  }
  Captured(Captured &&other) noexcept
      : graph(std::exchange(other.graph, nullptr)), nodes(other.nodes) {}
  Captured(const Captured &) = delete;
  Captured &operator=(const Captured &) = delete;
  Captured &operator=(Captured &&) = delete;

  cudaGraph_t graph = nullptr;
  size_t nodes = 0;
};

/// An executable graph for steps of one shape.
struct Shape {
  Shape() = default;
  ~Shape() {
    if (executable) cudaGraphExecDestroy(executable);
    if (graph) cudaGraphDestroy(graph);
  }
  Shape(Shape &&other) noexcept
      : graph(std::exchange(other.graph, nullptr)),
        executable(std::exchange(other.executable, nullptr)),
        parts(std::move(other.parts)),
        sizes(std::move(other.sizes)) {}
  Shape &operator=(Shape &&other) noexcept {
    std::swap(graph, other.graph);
    std::swap(executable, other.executable);
    parts.swap(other.parts);
    sizes.swap(other.sizes);
    return *this;
  }
  Shape(const Shape &) = delete;
  Shape &operator=(const Shape &) = delete;

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  std::vector<cudaGraphNode_t> parts;  // in the places of the groups; null for a group without work
  std::vector<size_t> sizes;           // nodes of each part
};

std::vector<size_t> sizesOf(const std::vector<Captured> &parts) {
  std::vector<size_t> sizes;
  for (const Captured &part : parts) sizes.push_back(part.nodes);
  return sizes;
}

/// Updates an executable graph with the parts of this step; false if their shape differs.
bool takes(const Shape &shape, const std::vector<Captured> &parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!shape.parts[i]) continue;
    if (cudaGraphExecChildGraphNodeSetParams(shape.executable, shape.parts[i], parts[i].graph) !=
        cudaSuccess) {
      cudaGetLastError();
      return false;
    }
  }
  return true;
}

/// Inserts a part before its placeholder node, after everything that the placeholder depends on.
cudaGraphNode_t insert(cudaGraph_t graph, cudaGraphNode_t place, cudaGraph_t part) {
  size_t count = 0;
  PULSORA_CUDA_CHECK(cudaGraphNodeGetDependencies(place, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> before(count);
  std::vector<cudaGraphEdgeData> edges(count);
  PULSORA_CUDA_CHECK(cudaGraphNodeGetDependencies(place, before.data(), edges.data(), &count));
  cudaGraphNode_t node = nullptr;
  PULSORA_CUDA_CHECK(cudaGraphAddChildGraphNode(&node, graph, before.data(), count, part));
  PULSORA_CUDA_CHECK(cudaGraphAddDependencies(graph, &node, &place, nullptr, 1));
  return node;
}

}  // namespace

struct TrainingGraph::Impl {
  explicit Impl(int device_) : device(device_), lanes(Lanes::of(device_)) {
    PULSORA_CUDA_CHECK(cudaEventCreateWithFlags(&reached, cudaEventDisableTiming));
  }
  ~Impl() {
    if (whole) cudaGraphDestroy(whole);
    cudaEventDestroy(reached);
  }
  Impl(const Impl &) = delete;
  Impl &operator=(const Impl &) = delete;

  Shape made(const std::vector<Captured> &parts) const {
    Shape shape;
    shape.sizes = sizesOf(parts);
    PULSORA_CUDA_CHECK(cudaGraphClone(&shape.graph, whole));
    for (size_t i = 0; i < parts.size(); ++i) {
      cudaGraphNode_t place = nullptr;
      PULSORA_CUDA_CHECK(cudaGraphNodeFindInClone(&place, groups[i].place, shape.graph));
      const bool hasWork = parts[i].nodes > 0;
      shape.parts.push_back(hasWork ? insert(shape.graph, place, parts[i].graph) : nullptr);
    }
    PULSORA_CUDA_CHECK(cudaGraphInstantiate(&shape.executable, shape.graph, 0));
    return shape;
  }

  cudaGraphExec_t executableFor(const std::vector<Captured> &parts) {
    const std::vector<size_t> sizes = sizesOf(parts);
    for (const Shape &shape : shapes) {
      if (shape.sizes == sizes && takes(shape, parts)) return shape.executable;
    }
    if (shapes.size() == kMostShapes) shapes.erase(shapes.begin());
    shapes.push_back(made(parts));
    return shapes.back().executable;
  }

  void order(cudaStream_t first, cudaStream_t then) const {
    PULSORA_CUDA_CHECK(cudaEventRecord(reached, first));
    PULSORA_CUDA_CHECK(cudaStreamWaitEvent(then, reached, 0));
  }

  cudaStream_t streamOf(int lane) const { return lanes.streams[static_cast<size_t>(lane)]; }

  /// Captures what the calls of a group enqueue.
  Captured capture(const Group &group) const {
    Captured captured;
    const cudaStream_t first = streamOf(group.lanes.front());
    PULSORA_CUDA_CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    try {
      for (size_t i = 1; i < group.lanes.size(); ++i) order(first, streamOf(group.lanes[i]));
      for (const LaneCall &each : group.calls) each.call();
      for (size_t i = 1; i < group.lanes.size(); ++i) order(streamOf(group.lanes[i]), first);
    } catch (...) {
      if (cudaStreamEndCapture(first, &captured.graph) != cudaSuccess) cudaGetLastError();
      throw;
    }
    PULSORA_CUDA_CHECK(cudaStreamEndCapture(first, &captured.graph));
    PULSORA_CUDA_CHECK(cudaGraphGetNodes(captured.graph, nullptr, &captured.nodes));
    return captured;
  }

  /// Makes this graph's pools those of its lanes, during its lifetime: what another graph has
  /// captured in the same lanes may run at the same time in another stream.
  struct OwnScratch {
    explicit OwnScratch(const Impl &graph_) : graph(graph_) {
      for (const int lane : graph.lanesInUse)
        before.push_back(ScratchPool::exchange(graph.device, graph.streamOf(lane),
                                               graph.scratch[static_cast<size_t>(lane)]));
    }
    ~OwnScratch() {
      for (size_t i = 0; i < before.size(); ++i)
        ScratchPool::exchange(graph.device, graph.streamOf(graph.lanesInUse[i]), before[i]);
    }
    OwnScratch(const OwnScratch &) = delete;
    OwnScratch &operator=(const OwnScratch &) = delete;

    const Impl &graph;
    std::vector<std::shared_ptr<ScratchPool>> before;
  };

  void release() const noexcept {
    for (const int lane : lanesInUse) releaseCaptured(streamOf(lane));
  }

  int device;
  Lanes &lanes;
  std::vector<int> lanesInUse;
  std::array<std::shared_ptr<ScratchPool>, TrainingGraph::kLanes> scratch;  // of lanes in use
  cudaEvent_t reached = nullptr;
  std::vector<Group> groups;
  cudaGraph_t whole = nullptr;
  std::vector<Shape> shapes;
};

TrainingGraph::TrainingGraph(int device) {
  requireCudaDevice(device);
  const CudaScope scope(device);
  impl_ = std::make_unique<Impl>(device);
}

TrainingGraph::~TrainingGraph() = default;

void *TrainingGraph::stream(int lane) const { return impl_->streamOf(lane); }

void TrainingGraph::add(void *capturing, int lane, Call call) {
  PULSORA_CHECK(ConfigError, lane >= 0 && lane < kLanes, "lane is ", lane,
                "; it must be from 0 to ", kLanes - 1);
  PULSORA_CHECK(StateError, !impl_->whole, "this TrainingGraph is finished; make another one");
  const CudaScope scope(impl_->device);
  const auto stream = static_cast<cudaStream_t>(capturing);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t *before = nullptr;
  const cudaGraphEdgeData *edges = nullptr;
  size_t count = 0;
  if (stream) {
    PULSORA_CUDA_CHECK(
        cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &before, &edges, &count));
  }
  PULSORA_CHECK(StateError, status == cudaStreamCaptureStatusActive,
                "a call was to be kept in a training graph, but its stream is not being captured; "
                "capture it first");
  std::vector<Group> &groups = impl_->groups;
  const bool follows = count == 1 && !groups.empty() && before[0] == groups.back().place;
  if (!follows) {
    Group group;
    PULSORA_CUDA_CHECK(cudaGraphAddEmptyNode(&group.place, graph, before, count));
    PULSORA_CUDA_CHECK(cudaStreamUpdateCaptureDependencies(stream, &group.place, nullptr, 1,
                                                           cudaStreamSetCaptureDependencies));
    groups.push_back(std::move(group));
  }
  groups.back().add(lane, std::move(call));
  std::vector<int> &lanes = impl_->lanesInUse;
  if (std::find(lanes.begin(), lanes.end(), lane) != lanes.end()) return;
  lanes.push_back(lane);
  auto pool = std::make_shared<ScratchPool>();
  pool->setGraphsRunOnce(true);
  impl_->scratch[static_cast<size_t>(lane)] = std::move(pool);
}

void TrainingGraph::finish(void *graph) {
  PULSORA_CHECK(StateError, !impl_->whole, "this TrainingGraph is finished already");
  PULSORA_CHECK(StateError, graph, "graph is null; give what the capture of the stream returned");
  const CudaScope scope(impl_->device);
  const auto captured = static_cast<cudaGraph_t>(graph);
  PULSORA_CUDA_CHECK(cudaGraphClone(&impl_->whole, captured));
  for (Group &group : impl_->groups) {
    PULSORA_CUDA_CHECK(cudaGraphNodeFindInClone(&group.place, group.place, impl_->whole));
  }
  size_t count = 0;
  PULSORA_CUDA_CHECK(cudaGraphGetNodes(captured, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  PULSORA_CUDA_CHECK(cudaGraphGetNodes(captured, nodes.data(), &count));
  for (cudaGraphNode_t node : nodes) PULSORA_CUDA_CHECK(cudaGraphDestroyNode(node));
}

void TrainingGraph::run(void *stream) {
  PULSORA_CHECK(StateError, impl_->whole,
                "this TrainingGraph is not finished; call finish() first");
  const CudaScope scope(impl_->device);
  const std::lock_guard<std::mutex> guard(impl_->lanes.mutex);
  const Impl::OwnScratch own(*impl_);
  const auto target = static_cast<cudaStream_t>(stream);
  std::vector<Captured> parts;
  try {
    for (const Group &group : impl_->groups) parts.push_back(impl_->capture(group));
    PULSORA_CUDA_CHECK(cudaGraphLaunch(impl_->executableFor(parts), target));
    // Memory that tiles free in their streams must outlive this run.
    for (const int lane : impl_->lanesInUse) impl_->order(target, impl_->streamOf(lane));
  } catch (...) {
    impl_->release();
    throw;
  }
  impl_->release();
}

int TrainingGraph::shapes() const { return static_cast<int>(impl_->shapes.size()); }

}  // namespace pulsora
