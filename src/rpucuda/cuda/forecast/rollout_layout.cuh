#pragma once

#include "cuda/core/cluster.cuh"
#include "forecast/rollout.h"
#include "numerics/math.h"

// Division of the work of a rollout on a GPU, and layout of shared memory.

namespace pulsora {
namespace rollouts {

constexpr int kThreads = 384;
constexpr int kGates = 3;

/// The division of a rollout. Only rowParts depends on more than the sizes of the ensemble.
struct Division {
  int blocks;    // of a cluster
  int units;     // of a block, a multiple of 4
  int lines;     // hidden lines of a product: blocks * units
  int encoded;   // X
  int rowParts;  // clusters that share a member

  __host__ __device__ int allLines() const { return lines + encoded; }
};

/// Cuts a product of `cols` columns into parts of its lines. With a border, each part is on one
/// side of the border.
struct Cut {
  int groups;  // of four columns
  int parts;
  int firstParts;  // parts before the border
  int firstLines;  // lines before the border
  int lines;

  // Adding up more parts takes longer than they save.
  static constexpr int kMostParts = 16;

  __host__ __device__ Cut(int cols, int lines_)
      : groups(cols / 4),
        parts(min(max(kThreads / (cols / 2), 2), kMostParts)),
        firstParts(parts),
        firstLines(lines_),
        lines(lines_) {}
  __host__ __device__ Cut(int cols, int lines_, int border) : Cut(cols, lines_) {
    const int share = (parts * border + lines / 2) / lines;
    firstParts = min(max(share, 1), parts - 1);
    firstLines = border;
  }
  __host__ __device__ int begin(int part) const {
    return part <= firstParts
               ? part * firstLines / firstParts
               : firstLines + (part - firstParts) * (lines - firstLines) / (parts - firstParts);
  }
  /// Number of tasks; a task of a thread is four columns for half of the rows over one part.
  __host__ __device__ int tasks() const { return 2 * groups * parts; }
};

/// Two halves of kRows rows (an even number): a line of activations holds the second half behind
/// the first.
template <int kRows>
struct RowLayout {
  static constexpr int kAll = 2 * kRows;
  static constexpr int kPitch = kAll;
};

/// Places in a block's shared memory, in floats. State, inputs and reset state are adjacent: the
/// product of the gates takes the first two, the product of the candidates the last two. Memory
/// from headParts to feedback starts as 0.
template <int kRows>
struct SharedLayout {
  using Rows = RowLayout<kRows>;
  int weights = 0, state, inputs, reset, sums, own, z, r, bias, heads, headParts, pre, feedback,
      spreads;
  int size;

  __host__ __device__ SharedLayout(const Division &d, bool resident) {
    const int ofGates = Cut(2 * d.units, d.allLines()).parts * 2 * d.units;
    const int ofCandidates = Cut(d.units, d.allLines()).parts * d.units;
    const int ownSize = Rows::kAll * d.units;
    state = resident ? d.allLines() * kGates * d.units : 0;
    inputs = state + d.lines * Rows::kPitch;
    reset = inputs + d.encoded * Rows::kPitch;
    sums = reset + d.lines * Rows::kPitch;
    own = sums + max(ofGates, ofCandidates) * Rows::kAll;
    z = own + ownSize;
    r = z + ownSize;
    bias = r + ownSize;
    heads = bias + (kGates + 1) * d.units;
    headParts = heads + 2 * d.units;
    pre = headParts + kMostBlocksOfCluster * Rows::kAll * 2;
    feedback = pre + d.encoded * Rows::kAll;
    spreads = feedback + d.encoded;
    size = spreads + kMostSteps;
  }
};

struct Problem {
  EnsembleShape shape;
  EnsembleWeights weights;
  MatrixView<const float> features;
  const float *first;
  int steps;
  bool feedback;
  RolloutOutputs out;
  RolloutOptions options;
  Division division;
  float *packed;  // weights of all blocks, if shared memory is too small
};

}  // namespace rollouts
}  // namespace pulsora
