#include "tile/step_graph.h"

#include "core/cuda_api.h"

// A build without the CUDA backend; with it, these are in cuda/step_graph.cu.
#ifndef PULSORA_CUDA

namespace RPU {

struct StepGraph::Impl {};

StepGraph::StepGraph(const Context &context) { requireCudaDevice(context.device); }
StepGraph::~StepGraph() = default;
void StepGraph::begin() {}
void StepGraph::end() {}
void StepGraph::abandon() noexcept {}
int StepGraph::shapes() const { return 0; }

}  // namespace RPU

#endif
