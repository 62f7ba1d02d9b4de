#include "core/scratch.h"
#include "cuda/periphery/digit_product.cuh"
#include "cuda/periphery/integer_shapes.cuh"
#include "periphery/read_kernels.h"

// When products of integers take the bytes of weights from memory, and the launches of these
// products.

namespace pulsora {
namespace {

template <int kDigits>
constexpr JobKernel<digits::DigitProblem> kProduct = {
    &digits::digitProductKernel<kDigits, 1>,
    &digits::digitProductKernel<kDigits, kMostJobs<digits::DigitProblem>>};

template <int kDigits, bool kAlong>
constexpr JobKernel<DigitsWanted> kMaker = {
    &weightDigitsKernel<kDigits, kAlong, 1>,
    &weightDigitsKernel<kDigits, kAlong, kMostJobs<DigitsWanted>>};

/// Whether the current device, of compute capability 9.0, has code compiled for sm_90a, which
/// compilers before CUDA 12 do not make. Other devices get a stub with hardly a register.
bool hasOwnCode() {
  static const bool has = [] {
    cudaFuncAttributes attributes{};
    PULSORA_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kProduct<2>.one));
    return attributes.numRegs > 64;
  }();
  return has;
}

/// Whether a device is of compute capability 9.0.
bool isHopper(int device) {
  int major = 0;
  int minor = 0;
  PULSORA_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  PULSORA_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

int64_t bytesOfLine(int64_t depth, const IntegerWeights &integers) {
  return integers.bits / 8 * blocksAlong(depth, 16) * 16;
}

template <int kDigits>
void multiply(const Context &context, const DigitsWanted &wanted,
              const digits::DigitProblem &product) {
  const auto [lines, depth] = std::pair(wanted.weights.rows, wanted.weights.cols);
  const dim3 grid(static_cast<unsigned>(blocksAlong(depth, kDigitInputs)),
                  static_cast<unsigned>(blocksAlong(lines, kDigitLines)));
  launchJob(context.stream,
            wanted.weights.colStride == 1 ? kMaker<kDigits, true> : kMaker<kDigits, false>, grid,
            kDigitThreads, 0, wanted);
  constexpr size_t kBytes = digits::kStages * digits::kStageBytes<kDigits>;
  letShare(kProduct<kDigits>, kBytes);
  launchJob(context.stream, kProduct<kDigits>,
            static_cast<unsigned>(product.rowBlocks * blocksAlong(lines, digits::kLines)),
            digits::kThreads, kBytes, product);
}

}  // namespace

int64_t cudaDigitBytes(const Context &context, MatrixView<const float> weights, int64_t rows,
                       const IntegerWeights &integers, bool oneByte) {
  constexpr int64_t kMostBytes = digits::kStages * digits::kStageBytes<3>;
  if (!oneByte || rows < kManyRows || necessaryParts(weights.cols) > 1) return 0;
  const CudaScope scope(context.device);
  if (!isHopper(context.device) || !hasOwnCode() || sharedBytesOf(context.device) < kMostBytes)
    return 0;
  // About a quarter of the limit, so that blocks of many rows have room beside it.
  const int64_t line = bytesOfLine(weights.cols, integers);
  const int64_t most = pulsora::max(scratchLimit() / 4, int64_t{1});
  const int64_t times = pulsora::max((weights.rows * line + most / 2) / most, int64_t{1});
  const int64_t blocksOfLines = blocksAlong(blocksAlong(weights.rows, times), digits::kLines);
  const int64_t blocks = blocksOfLines * blocksAlong(rows, digits::kRows) *
                         static_cast<int64_t>(BatchedLaunches::together());
  if (blocks < kLargeBlocks) return 0;  // most of the GPU would wait
  return pulsora::min(blocksOfLines * digits::kLines, weights.rows) * line;
}

void multiplyDigits(const Context &context, const LevelBytes &levels, int64_t rows,
                    MatrixView<const float> weights, const IntegerWeights &integers,
                    const IntegerSums &to) {
  const int64_t line = bytesOfLine(weights.cols, integers);
  const int64_t most = to.digits.bytes / line;
  for (int64_t first = 0; first < weights.rows; first += most) {
    const int64_t lines = pulsora::min(most, weights.rows - first);
    const WeightDigits digits{to.digits.data, blocksAlong(weights.cols, 16) * 16,
                              lines * (blocksAlong(weights.cols, 16) * 16)};
    const MatrixView<const float> some = weights.block(first, 0, lines, weights.cols);
    const DigitsWanted wanted{some, integers, digits, areInQuads(some)};
    const digits::DigitProblem product{levels,
                                       digits,
                                       to.sums + first,
                                       weights.rows,
                                       to.unit,
                                       static_cast<int>(rows),
                                       static_cast<int>(lines),
                                       static_cast<int>(weights.cols),
                                       static_cast<int>(blocksAlong(rows, digits::kRows))};
    integers.bits == 16 ? multiply<2>(context, wanted, product)
                        : multiply<3>(context, wanted, product);
  }
}

}  // namespace pulsora
