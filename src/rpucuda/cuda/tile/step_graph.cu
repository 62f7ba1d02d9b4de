#include <memory>
#include <vector>

#include "core/scratch.h"
#include "cuda/core/check.cuh"
#include "cuda/core/memory.cuh"
#include "tile/step_graph.h"

namespace pulsora {
namespace {

// A training loop has a handful of shapes: with and without a transfer, a smaller last batch.
constexpr size_t kMostShapes = 8;

struct Shape {
  size_t nodes = 0;
  cudaGraphExec_t executable = nullptr;
};

}  // namespace

struct StepGraph::Impl {
  explicit Impl(const Context &context_) : context(context_), scratch(ScratchPool::of(context_)) {}

  /// An executable for `graph`: one of equal shape, updated with its parameters, or else a new one.
  cudaGraphExec_t executableFor(cudaGraph_t graph) {
    size_t nodes = 0;
    PULSORA_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (shapes[i].nodes != nodes) continue;
      cudaGraphExecUpdateResultInfo info{};
      if (cudaGraphExecUpdate(shapes[i].executable, graph, &info) == cudaSuccess)
        return shapes[i].executable;
      cudaGetLastError();
    }
    if (shapes.size() == kMostShapes) {
      cudaGraphExecDestroy(shapes.front().executable);
      shapes.erase(shapes.begin());
    }
    Shape made;
    made.nodes = nodes;
    PULSORA_CUDA_CHECK(cudaGraphInstantiate(&made.executable, graph, 0));
    shapes.push_back(made);
    return made.executable;
  }

  Context context;
  std::shared_ptr<ScratchPool> scratch;
  bool isRecording = false;
  std::vector<Shape> shapes;
};

StepGraph::StepGraph(const Context &context) {
  PULSORA_CHECK(DeviceError, !context.onCpu(),
                "a StepGraph was asked for on the CPU; use device='cuda'");
  requireCudaDevice(context.device);
  PULSORA_CHECK(ConfigError, context.stream != nullptr,
                "the default stream cannot be recorded; let the tile work in a stream of its own");
  impl_ = std::make_unique<Impl>(context);
}

StepGraph::~StepGraph() {
  abandon();
  for (const Shape &shape : impl_->shapes) cudaGraphExecDestroy(shape.executable);
}

void StepGraph::begin() {
  PULSORA_CHECK(StateError, !impl_->isRecording,
                "this StepGraph is recording already; call end() first");
  const CudaScope scope(impl_->context.device);
  forgetCaptured(impl_->context.stream);
  PULSORA_CUDA_CHECK(
      cudaStreamBeginCapture(streamOf(impl_->context), cudaStreamCaptureModeThreadLocal));
  impl_->isRecording = true;
  impl_->scratch->setGraphsRunOnce(true);
}

void StepGraph::end() {
  PULSORA_CHECK(StateError, impl_->isRecording,
                "this StepGraph is not recording; call begin() first");
  impl_->isRecording = false;
  impl_->scratch->setGraphsRunOnce(false);
  const CudaScope scope(impl_->context.device);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(streamOf(impl_->context), &graph);
  cudaError_t launched = cudaSuccess;
  try {
    PULSORA_CUDA_CHECK(ended);
    launched = cudaGraphLaunch(impl_->executableFor(graph), streamOf(impl_->context));
  } catch (...) {
    if (graph) cudaGraphDestroy(graph);
    releaseCaptured(impl_->context.stream);
    throw;
  }
  cudaGraphDestroy(graph);
  releaseCaptured(impl_->context.stream);
  PULSORA_CUDA_CHECK(launched);
}

void StepGraph::abandon() noexcept {
  if (!impl_->isRecording) return;
  impl_->isRecording = false;
  impl_->scratch->setGraphsRunOnce(false);
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(streamOf(impl_->context), &graph) != cudaSuccess) cudaGetLastError();
  if (graph) cudaGraphDestroy(graph);
  releaseCaptured(impl_->context.stream);
}

int StepGraph::shapes() const { return static_cast<int>(impl_->shapes.size()); }

}  // namespace pulsora
