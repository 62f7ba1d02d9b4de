#pragma once

#include "array/cell_events.h"
#include "array/line_events.h"
#include "array/program_cells.h"
#include "cuda/array/launch_arguments.h"
#include "cuda/core/grid.h"
#include "devices/batch_noise.h"

// The host half of a device model's kernels for a GPU: the choice of kernels and grids. The
// Launcher makes the launches: by nvcc for built-in models, or by runtime/plugin.h for models that
// are compiled at run time. Any C++ compiler reads this.

namespace pulsora {
namespace gpu {

/// The kernels of a model. cuda/array/model_kernels.cuh defines the code of each.
enum class ModelKernel : int {
  Construct,
  Describe,
  Balance,
  Relax,
  Reset,
  Write,
  PulseLines,
  TapLines,
  Program,
  UpdateOne,
  UpdateTwo,
  UpdateMost,
  // For models that merge noise:
  MergeRows,
  MergeTiles,
  Deferred,
};
constexpr int kModelKernels = 15;

/// The kernels of `Device` as a table. The Launcher has
///
///   launch<ModelKernel>(stream, blocks, threads, arguments...)  with the kernel's argument types
///   clear(data, bytes, stream)                                  fills GPU memory with zeros
///   multipliesBits()                                            compute capability 8.0 or more
template <class Device, class Launcher>
struct ModelLaunches {
  template <ModelKernel kernel, class Work>
  static void overCells(const Array<Device> &array, const Work &work, int64_t begin, int64_t end,
                        void *stream) {
    if (begin >= end) return;
    Launcher::template launch<kernel>(stream, gridFor(end - begin, kCellThreads), kCellThreads,
                                      array, work, begin, end);
  }

  static void construct(const SampledCells &array, uint16_t *cells, int64_t begin, int64_t end,
                        void *stream) {
    overCells<ModelKernel::Construct>(Array<Device>::of(array), ConstructCell<Device>{cells}, begin,
                                      end, stream);
  }
  static void describe(const SampledCells &array, const float *weights, float *out, int64_t begin,
                       int64_t end, void *stream) {
    overCells<ModelKernel::Describe>(Array<Device>::of(array), DescribeCell<Device>{weights, out},
                                     begin, end, stream);
  }
  static void balance(const SampledCells &array, int64_t pairs, float *points, int64_t begin,
                      int64_t end, void *stream) {
    overCells<ModelKernel::Balance>(Array<Device>::of(array), BalanceCell<Device>{pairs, points},
                                    begin, end, stream);
  }
  static void relax(const CellArray &array, const Relaxation &event, int64_t begin, int64_t end,
                    void *stream) {
    overCells<ModelKernel::Relax>(Array<Device>::of(array), RelaxCell{event}, begin, end, stream);
  }
  static void reset(const CellArray &array, const ResetEvent &event, int64_t begin, int64_t end,
                    void *stream) {
    overCells<ModelKernel::Reset>(Array<Device>::of(array), ResetCell{event}, begin, end, stream);
  }
  static void write(const CellArray &array, MatrixView<const float> from, int64_t begin,
                    int64_t end, void *stream) {
    overCells<ModelKernel::Write>(Array<Device>::of(array), WriteCell{from}, begin, end, stream);
  }
  static void pulseLines(const CellArray &array, const LinePulses &pulses, uint64_t *sent,
                         int64_t begin, int64_t end, void *stream) {
    constexpr int64_t kManyElements = int64_t{1} << 19;  // with fewer, some processors would idle
    if (begin >= end) return;
    const int each = end - begin < kManyElements ? 1 : kLinesEach;
    Launcher::template launch<ModelKernel::PulseLines>(
        stream, gridFor(end - begin, each * kCellThreads), kCellThreads, Array<Device>::of(array),
        PulseLine<Device>{pulses}, sent, begin, end, each);
  }
  static void tapLines(const CellArray &array, const LineTaps &taps, int64_t begin, int64_t end,
                       void *stream) {
    overCells<ModelKernel::TapLines>(Array<Device>::of(array), TapLine<Device>{taps}, begin, end,
                                     stream);
  }

  static void program(const CellArray &array, const CellProgram &program, uint64_t *sent,
                      int64_t begin, int64_t end, void *stream) {
    constexpr int64_t kProgramBlocks = 792;  // six of each processor of the largest cards
    if (begin >= end) return;
    Launcher::template launch<ModelKernel::Program>(
        stream, gridFor(end - begin, kProgramThreads, kProgramBlocks), kProgramThreads,
        Array<Device>::of(array), ProgramCell<Device>{program}, sent, begin, end);
  }

  template <ModelKernel kernel, int kArrays>
  static void updateSome(const PulsedUpdate *updates, int count, void *stream) {
    ArrayUpdates<Device, kArrays> all{};
    unsigned blocks = 0;
    for (int k = 0; k < count; ++k) {
      const PulsedUpdate &u = updates[k];
      all.each[k] = {Array<Device>::of(u.array), u.words, Blocks::of(u.array), u.coincidences};
      blocks += all.each[k].blocks.count();
    }
    Launcher::template launch<kernel>(stream, blocks, kUpdateThreads, all);
  }
  static void updateTogether(const PulsedUpdate *updates, int count, void *stream) {
    for (; count > kMostTogether; updates += kMostTogether, count -= kMostTogether)
      updateSome<ModelKernel::UpdateMost, kMostTogether>(updates, kMostTogether, stream);
    if (count == 1) {
      updateSome<ModelKernel::UpdateOne, 1>(updates, count, stream);
    } else if (count == 2) {
      updateSome<ModelKernel::UpdateTwo, 2>(updates, count, stream);
    } else {
      updateSome<ModelKernel::UpdateMost, kMostTogether>(updates, count, stream);
    }
  }
  static void update(const CellArray &array, const PulseWords &words, uint64_t *coincidences,
                     int64_t, int64_t, void *stream) {
    if constexpr (kMergesNoise<Device>) {
      if (array.params->noise_merge == NoiseMerge::Batch)
        return merge(array, words, coincidences, stream);
    }
    const PulsedUpdate one{array, words, coincidences};
    updateTogether(&one, 1, stream);
  }

  /// Whether four neighbouring cells of a row can be read at once.
  static bool inFours(const Array<Device> &a) {
    const auto multiple = [](const void *address, uintptr_t of) {
      return reinterpret_cast<uintptr_t>(address) % of == 0;
    };
    return a.cols % 4 == 0 && multiple(a.weights, 4 * sizeof(float)) &&
           multiple(a.cells, 4 * sizeof(uint16_t));
  }
  /// An update with noise_merge = "batch"; see cuda/array/batch_update.cuh.
  static void merge(const CellArray &array, const PulseWords &words, uint64_t *coincidences,
                    void *stream) {
    constexpr int64_t kDeferredBlocks = 528;  // four of each processor of the largest cards
    const Array<Device> a = Array<Device>::of(array);
    Launcher::clear(array.deferred, sizeof(uint32_t), stream);
    bool tiled = false;
    if constexpr (!kMergesInOrder<Device>) {
      constexpr int64_t kManyCells = int64_t{1} << 20;  // enough tiles to keep the card busy
      tiled = words.kind == PulseKind::Words && words.way == PulseWay::Both &&
              array.size() >= kManyCells && array.rows >= kTileRows && array.cols >= kTileCols &&
              Launcher::multipliesBits();
      if (tiled) {
        const int64_t tiles =
            (array.rows + kTileRows - 1) / kTileRows * ((array.cols + kTileCols - 1) / kTileCols);
        Launcher::template launch<ModelKernel::MergeTiles>(stream, static_cast<unsigned>(tiles),
                                                           kMergeThreads, a, words, coincidences,
                                                           array.deferred, inFours(a));
      }
    }
    if (!tiled) {
      const Blocks blocks = Blocks::of(array);
      Launcher::template launch<ModelKernel::MergeRows>(
          stream, blocks.count(), kMergeThreads, a, words, blocks, coincidences, array.deferred);
    }
    const uint32_t *deferred = array.deferred;
    Launcher::template launch<ModelKernel::Deferred>(
        stream, gridFor(array.size(), kDeferredThreads, kDeferredBlocks), kDeferredThreads, a,
        words, deferred);
  }

  static constexpr PulsedKernels kTable = {&construct,  &update,   &updateTogether, &describe,
                                           &balance,    &relax,    &reset,          &write,
                                           &pulseLines, &tapLines, &program};
};

}  // namespace gpu
}  // namespace pulsora
