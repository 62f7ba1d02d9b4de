// The GPU functions of all folders for a build without the CUDA backend (CMake compiles this file
// only then): the device count is 0, and whatever needs a device throws.

#include "core/check.h"
#include "core/cuda_api.h"
#include "forecast/gru_kernels.h"
#include "forecast/truncated_svd.h"
#include "lowrank/kernels.h"
#include "lrtt/projection.h"
#include "periphery/read_kernels.h"
#include "pulses/draw_trains.h"
#include "tile/step_graph.h"
#include "tile/training_graph.h"
#include "transfer/transfer_ledger.h"
#include "transfer/transfer_plan.h"

namespace RPU {
namespace {

[[noreturn]] void absent() {
  throw DeviceError(
      "device='cuda' was asked for, but this build of Pulsora has no CUDA backend; use "
      "device='cpu', or rebuild where nvcc is installed");
}

}  // namespace

// --- core

int cudaDeviceCount() { return 0; }
void requireCudaDevice(int) { absent(); }
CudaScope::CudaScope(int) { absent(); }
CudaScope::~CudaScope() { previous_ = -1; }
bool isCaptured(void *) { return false; }

namespace detail {
void *cudaAllocate(const Context &, size_t) { absent(); }
void cudaRelease(int, void *, void *) noexcept {}
void cudaCopy(const Context &, void *, const void *, size_t, CopyKind) { absent(); }
void cudaFillZero(const Context &, void *, size_t) { absent(); }
void cudaOrder(const Context &, const Context &) { absent(); }
void cudaFinish(const Context &) noexcept {}
void cudaPrepareProducts(const Context &) { absent(); }
void cudaGemm(const Context &, float, MatrixView<const float>, MatrixView<const float>, float,
              MatrixView<float>) {
  absent();
}
void cudaAccumulate(const Context &, MatrixView<const float>, MatrixView<const float>,
                    MatrixView<float>) {
  absent();
}
void cudaRowAbsMax(const Context &, MatrixView<const float>, float *) { absent(); }
void cudaCheckFinite(const Context &, MatrixView<const float>, MatrixView<const float>) {
  absent();
}
int64_t cudaCountOutside(const Context &, const float *, const float *, const float *, int64_t) {
  absent();
}
}  // namespace detail

// --- pulses

void cudaScaleTrains(const Context &, MatrixView<const float>, MatrixView<const float>,
                     const TrainJob &) {
  absent();
}
void cudaDrawTrains(const Context &, const TrainSide *, int) { absent(); }

// --- periphery

void cudaMeasureInputs(const Context &, const InputStage &) { absent(); }
void cudaConvertInputs(const Context &, const InputStage &, bool) { absent(); }
void cudaFinishOutputs(const Context &, const OutputStage &) { absent(); }
int64_t cudaProductParts(MatrixView<const float>, int64_t) { absent(); }
void cudaMultiplyParts(const Context &, const PlainRead &, bool, bool) { absent(); }
void cudaFinishPlain(const Context &, const PlainRead &, const AddedRead &) { absent(); }
void cudaRepeatReads(const Context &, const PlainRead &, const AddedRead &) { absent(); }
void cudaReadRows(const Context &, const PlainRead &) { absent(); }
void cudaReadShortRows(const Context &, const PlainRead &, const PlainRead &, const AddedRead &) {
  absent();
}
void cudaReadGroups(const Context &, const PlainRead &, const PlainRead &, const AddedRead &,
                    Buffer<uint32_t> &) {
  absent();
}
void cudaReserveMarks(const Context &, int64_t, Buffer<uint32_t> &) { absent(); }
void cudaReadBeside(const Context &, const PlainRead &, const PlainRead &) { absent(); }
void cudaConvertBeside(const Context &, const InputStage &, const PlainRead &, const PlainRead &) {
  absent();
}

// --- transfer

void cudaPlanTransfer(const Context &, const TransferPlanner &, uint32_t *) { absent(); }
void cudaAlignRows(const Context &, MatrixView<const float>, const TransferFactors &, float,
                   double *, double *) {
  absent();
}
void cudaCountTransfer(const Context &, const TransferTally &) { absent(); }

// --- lowrank

bool cudaGatedLowRank(const Context &, const GatedLowRank &, ConstAnyMatrix, AnyMatrix) {
  absent();
}
bool cudaGatedLowRankLinear(const Context &, const GatedLowRank &, ConstAnyMatrix, ConstAnyMatrix,
                            AnyMatrix) {
  absent();
}
bool cudaGatedLowRankLinearPays(const Context &, const GatedLowRank &, ConstAnyMatrix,
                                ConstAnyMatrix, AnyMatrix) {
  absent();
}
bool cudaGatedLowRankBackward(const Context &, const GatedLowRank &, ConstAnyMatrix,
                              const GatedGradients &) {
  absent();
}
bool cudaAdapterGradients(const Context &, MatrixView<const float>, MatrixView<const float>,
                          MatrixView<const float>, bool, MatrixView<float>, MatrixView<float>) {
  absent();
}
int64_t cudaGatedLowRankScratch(const Context &, const GatedLowRank &, ConstAnyMatrix,
                                const GatedGradients &) {
  absent();
}

// --- forecast

bool cudaEncode(const Context &, MatrixView<const float>, MatrixView<const float>,
                VectorView<const float>, MatrixView<float>) {
  absent();
}
bool cudaRollout(const Context &, const EnsembleShape &, const EnsembleWeights &,
                 MatrixView<const float>, const float *, int64_t, bool, const RolloutOutputs &) {
  absent();
}

void cudaInverseCholesky(const Context &, int64_t, const double *, float *, uint32_t *) {
  absent();
}
void cudaSettleSigns(const Context &, MatrixView<float>, MatrixView<float>) { absent(); }

// --- lrtt

void cudaProject(const Context &, const AdapterProjection &) { absent(); }

// --- tile

struct StepGraph::Impl {};

StepGraph::StepGraph(const Context &) { absent(); }
StepGraph::~StepGraph() = default;
void StepGraph::begin() {}
void StepGraph::end() {}
void StepGraph::abandon() noexcept {}
int StepGraph::shapes() const { return 0; }

struct TrainingGraph::Impl {};

TrainingGraph::TrainingGraph(int) { absent(); }
TrainingGraph::~TrainingGraph() = default;
void *TrainingGraph::stream(int) const { return nullptr; }
void TrainingGraph::add(void *, int, Call) {}  // NOLINT(performance-unnecessary-value-param)
void TrainingGraph::finish(void *) {}
void TrainingGraph::run(void *) {}
int TrainingGraph::shapes() const { return 0; }

}  // namespace RPU
