// The GPU functions of periphery/ for a build without CUDA; CMake compiles this file only then.

#include "core/has_cuda.h"
#include "periphery/one_hot_sums.h"
#include "periphery/read_kernels.h"

namespace pulsora {

void cudaMeasureInputs(const Context &, const InputStage &) { throwWithoutCuda(); }
void cudaConvertInputs(const Context &, const InputStage &, bool) { throwWithoutCuda(); }
void cudaFinishOutputs(const Context &, const OutputStage &) { throwWithoutCuda(); }
int64_t cudaProductParts(const Context &, MatrixView<const float>, int64_t) { throwWithoutCuda(); }
void cudaMultiplyParts(const Context &, const PlainRead &, bool, bool) { throwWithoutCuda(); }
void cudaMultiplyIntegers(const Context &, const LevelBytes &, int64_t, MatrixView<const float>,
                          const IntegerWeights &, const IntegerSums &, bool) {
  throwWithoutCuda();
}
int64_t cudaDigitBytes(const Context &, MatrixView<const float>, int64_t, const IntegerWeights &,
                       bool) {
  throwWithoutCuda();
}
int64_t cudaIntegerParts(MatrixView<const float>, int64_t, bool, bool) { throwWithoutCuda(); }
void cudaFinishPlain(const Context &, const PlainRead &, const AddedRead &) { throwWithoutCuda(); }
void cudaRepeatReads(const Context &, const PlainRead &, const AddedRead &) { throwWithoutCuda(); }
void cudaReadRows(const Context &, const PlainRead &) { throwWithoutCuda(); }
void cudaReadShortRows(const Context &, const PlainRead &, const PlainRead &, const AddedRead &) {
  throwWithoutCuda();
}
void cudaReadGroups(const Context &, const PlainRead &, const PlainRead &, const AddedRead &,
                    Buffer<uint32_t> &) {
  throwWithoutCuda();
}
void cudaSumOneHot(const Context &, const OneHotRead &, double *) { throwWithoutCuda(); }
void cudaReserveMarks(const Context &, int64_t, Buffer<uint32_t> &) { throwWithoutCuda(); }
void cudaReadBeside(const Context &, const PlainRead &, const PlainRead &) { throwWithoutCuda(); }
void cudaConvertBeside(const Context &, const InputStage &, const PlainRead &, const PlainRead &) {
  throwWithoutCuda();
}

}  // namespace pulsora
