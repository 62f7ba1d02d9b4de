// The GPU functions of tile/ for a build without CUDA; CMake compiles this file only then.

#include "core/has_cuda.h"
#include "tile/step_graph.h"
#include "tile/training_graph.h"

namespace pulsora {

struct StepGraph::Impl {};

StepGraph::StepGraph(const Context &) { throwWithoutCuda(); }
StepGraph::~StepGraph() = default;
void StepGraph::begin() {}
void StepGraph::end() {}
void StepGraph::abandon() noexcept {}
int StepGraph::shapes() const { return 0; }

struct TrainingGraph::Impl {};

TrainingGraph::TrainingGraph(int) { throwWithoutCuda(); }
TrainingGraph::~TrainingGraph() = default;
void *TrainingGraph::stream(int) const { return nullptr; }
void TrainingGraph::add(void *, int, Call) {}  // NOLINT(performance-unnecessary-value-param)
void TrainingGraph::finish(void *) {}
void TrainingGraph::run(void *) {}
int TrainingGraph::shapes() const { return 0; }

}  // namespace pulsora
