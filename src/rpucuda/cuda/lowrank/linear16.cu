#include <cmath>
#include <cstring>
#include <cudaTypedefs.h>
#include <limits>

#include "core/buffer.h"
#include "cuda/lowrank/linear16.cuh"
#include "cuda/lowrank/updates.cuh"

// Choice of cases and tiles for the kernel of linear16.cuh, and its launch.

namespace pulsora::lowrank {
namespace {

using layer16::kDepth;
using layer16::kRows;
using layer16::Layer;

/// The driver's function that encodes maps; null before CUDA 12.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto function = [] {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                                12000, cudaEnableDefault, &result);
#else
    const cudaError_t status =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    if (status != cudaSuccess) cudaGetLastError();
    const bool isThere = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return isThere ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found) : nullptr;
  }();
  return function;
}

/// Whether the current device, of compute capability 9.0, has code compiled for sm_90a, which
/// compilers before CUDA 12 do not make. Other devices get a stub with hardly a register.
bool hasOwnCode() {
  static const bool has = [] {
    cudaFuncAttributes attributes{};
    PULSORA_CUDA_CHECK(
        cudaFuncGetAttributes(&attributes, layer16::linearKernel<Half, 1, 192, false>));
    return attributes.numRegs > 128;
  }();
  return has;
}

/// Whether the copy engine can take parts of a matrix.
bool isMappable(ConstAnyMatrix m) {
  return hasPieces(m) && m.cols > 0 && (m.rows <= 1 || m.rowStride >= m.cols) &&
         isCountable(m.rows) && isCountable(m.cols);
}

/// A map of the matrix in panels of `rows` x kDepth.
MatrixMap mapOf(ConstAnyMatrix m, int rows) {
  static_assert(sizeof(MatrixMap) == sizeof(CUtensorMap));
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(m.cols), static_cast<cuuint64_t>(m.rows)};
  const int64_t stride = m.rows > 1 ? m.rowStride : m.cols;
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(2 * stride)};
  const cuuint32_t box[2] = {kDepth, static_cast<cuuint32_t>(rows)}, apart[2] = {1, 1};
  CUtensorMap map;
  const CUresult status =
      encoder()(&map,
                m.type == ElementType::Float16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                               : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                2, const_cast<void *>(m.data), sizes, strides, box, apart,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  PULSORA_CHECK(DeviceError, status == CUDA_SUCCESS, "the CUDA driver cannot describe a matrix [",
                m.rows, ", ", m.cols, "] with rows ", stride, " apart (CUDA error ",
                static_cast<int>(status), ")");
  MatrixMap made;
  std::memcpy(&made, &map, sizeof made);
  return made;
}

/// How a case is cut into tiles.
struct Plan {
  int width;  // of a tile: 128 or 192
  bool takesTurns;
};

Plan planOf(const GatedLowRank &update, const GpuFacts &gpu) {
  const auto rows = static_cast<double>(update.x.rows), cols = static_cast<double>(update.u.rows);
  const int gates = update.v.cols <= 8 ? 8 : 16;
  // Cost of a tile besides its products, about a microsecond, in columns of products.
  const double end = 27000.0 / static_cast<double>(update.x.cols);
  Plan best{};
  double least = std::numeric_limits<double>::infinity();
  for (const int width : {192, 128}) {
    const double tiles = std::ceil(rows / kRows) * std::ceil(cols / width);
    const double waves = std::ceil(tiles / gpu.processors);
    for (const bool takesTurns : {false, true}) {
      if (takesTurns && width == 192 && gates > 8) continue;  // more sums than registers
      // A single warpgroup takes twice as long for the end of a tile.
      const double cost = waves * (width + gates) + (takesTurns ? 2.0 : waves) * end;
      if (cost < least) least = cost, best = {width, takesTurns};
    }
  }
  return best;
}

template <class T, int kTiles, int kWidth, bool kTakesTurns>
void launchLinear(const Context &context, Layer<T> &layer, const GatedLowRank &update,
                  ConstAnyMatrix weight, ConstAnyMatrix vt, int processors) {
  layer.x = mapOf(update.x, kRows);
  layer.weight = mapOf(weight, kWidth);
  layer.v = mapOf(vt, 8 * kTiles);
  layer.across = static_cast<int>((weight.rows + kWidth - 1) / kWidth);
  layer.tiles = static_cast<int>((update.x.rows + kRows - 1) / kRows) * layer.across;
  const auto kernel = &layer16::linearKernel<T, kTiles, kWidth, kTakesTurns>;
  constexpr int kBytes = sizeof(layer16::Memory<T, kTiles, kWidth>);
  PULSORA_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const auto grid = static_cast<unsigned>(pulsora::min(layer.tiles, processors));
  launch(context.stream, kernel, grid, layer16::kThreads, kBytes, layer);
}

template <class T>
__global__ void transposeKernel(const __grid_constant__ Factor<T> from, T *to) {
  awaitEarlier();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < from.rows * from.cols) to[i] = from.at(i % from.rows, i / from.rows);
}

}  // namespace

bool canFuse16(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
               ConstAnyMatrix bias, ConstAnyMatrix y) {
  const int64_t n = update.v.cols;
  const bool hasBias = !bias.data || bias.colStride == 1;
  if (n == 0 || n > 16 || !hasBias || !isMappable(update.x) || !isMappable(weight) ||
      !hasPieces(y) || !isCountable(weight.rows * pulsora::max(weight.cols, int64_t{16})))
    return false;
  const CudaScope scope(context.device);
  return factsOf(context.device).capability == 90 && encoder() && hasOwnCode();
}

bool fusing16Pays(const GatedLowRank &update) {
  // On an H200 the kernel took 0.26 to 0.94 of the time of two passes in 39 shapes of at least 512
  // rows (benchmarks/NOTES.md); fewer rows have too few tiles for all processors.
  return update.x.rows >= 512;
}

template <class T>
void fused16(const Context &context, const GatedLowRank &update, ConstAnyMatrix weight,
             ConstAnyMatrix bias, AnyMatrix y) {
  const CudaScope scope(context.device);
  const GpuFacts gpu = factsOf(context.device);
  ConstAnyMatrix vt = update.v.transposed();
  Buffer<T> copied;
  if (!isMappable(vt)) {
    copied.reserve(context, vt.size());
    const auto blocks = static_cast<unsigned>((vt.size() + 255) / 256);
    launch(context.stream, transposeKernel<T>, blocks, 256, 0, Factor<T>(update.v), copied.data());
    vt = rowMajor<const T>(copied.data(), vt.rows, vt.cols);
  }
  const auto n = static_cast<int>(update.v.cols);
  Layer<T> layer{{},
                 {},
                 {},
                 CodeReader<T>(update.codes),
                 Factor<T>(update.u),
                 static_cast<const T *>(bias.data),
                 static_cast<T *>(y.data),
                 y.rowStride,
                 static_cast<int>(y.rows),
                 static_cast<int>((update.x.cols + kDepth - 1) / kDepth),
                 0,
                 0,
                 n,
                 update.scale,
                 n % 8 == 0 && hasPieces(update.u),
                 y.size() * elementBytes(y.type) >= gpu.cacheBytes / 6};
  const Plan plan = planOf(update, gpu);
  const auto run = [&](auto tiles, auto width, auto takesTurns) {
    launchLinear<T, tiles(), width(), takesTurns()>(context, layer, update, weight, vt,
                                                    gpu.processors);
  };
  const auto runTiles = [&](auto tiles) {
    using Wide = std::integral_constant<int, 192>;
    using Narrow = std::integral_constant<int, 128>;
    if (plan.width == 128) {
      plan.takesTurns ? run(tiles, Narrow(), std::true_type())
                      : run(tiles, Narrow(), std::false_type());
    } else if (plan.takesTurns) {
      if constexpr (tiles() == 1) run(tiles, Wide(), std::true_type());
    } else {
      run(tiles, Wide(), std::false_type());
    }
  };
  if (n <= 8) {
    runTiles(std::integral_constant<int, 1>());
  } else {
    runTiles(std::integral_constant<int, 2>());
  }
}

template void fused16<Half>(const Context &, const GatedLowRank &, ConstAnyMatrix, ConstAnyMatrix,
                            AnyMatrix);
template void fused16<BFloat16>(const Context &, const GatedLowRank &, ConstAnyMatrix,
                                ConstAnyMatrix, AnyMatrix);

}  // namespace pulsora::lowrank
