#pragma once

#include <string>
#include <vector>

#include "periphery/block_read.h"

namespace pulsora {

/// How many lines a physical array has at most in the direction of a read; 0 is no limit.
struct ReadLimits {
  int64_t inputs = 0;
  int64_t outputs = 0;

  /// Of the same array, read in the other direction.
  ReadLimits reversed() const { return {outputs, inputs}; }
};

/// Some neighbouring lines.
struct LineRange {
  int64_t first;
  int64_t count;
};

/// As few ranges of at most `limit` lines as `size` lines can be cut into; a limit of 0 is none.
int64_t countOfRanges(int64_t size, int64_t limit);
/// `size` lines cut evenly into so many ranges.
std::vector<LineRange> cutLines(int64_t size, int64_t limit);

/// The analog product of one matrix of cells [outSize, inSize] with its periphery: out[m, outSize]
/// from in[m, inSize], one direction.
///
/// A matrix beyond `limits` lies on several physical arrays, its blocks (cutLines()). Each has a
/// BlockRead of its own: scales, converters, noise, running mean, and random numbers. What the blocks
/// with the same outputs read is added digitally, in the order of their inputs. A read of one block is
/// that BlockRead.
class AnalogRead {
 public:
  using Product = BlockRead::Product;

  /// Block 0 draws with `key`, the others with keys that follow from it. `pass` selects the noise
  /// streams.
  AnalogRead(const Context &context, const IOParameters &parameters, Pass pass, int64_t inSize,
             int64_t outSize, RandomKey key, const ReadLimits &limits = {});

  /// Storage for run() of up to `rows` samples with weights of this shape: it cannot run out of
  /// memory then. `product`: whether it will read through a Product.
  void reserve(const Context &context, MatrixView<const float> weights, int64_t rows,
               bool product = false);

  /// out = in * W^T with W [outSize, inSize] given in any layout (a transposed view for the
  /// backward direction).
  void run(const Context &context, MatrixView<const float> weights, MatrixView<const float> in,
           MatrixView<float> out, uint64_t firstSample);

  /// The same for rows [firstRow, firstRow + in.rows) of a mini-batch, for all of which reserve() has
  /// been called. Where rowsAreApart(), threads may read several parts at the same time.
  void runRows(const Context &context, MatrixView<const float> weights, MatrixView<const float> in,
               MatrixView<float> out, uint64_t firstSample, int64_t firstRow);
  /// On a CPU, unless a read depends on the whole mini-batch or needs several products.
  bool rowsAreApart(const Context &context) const;
  /// The work of one row, see kStepsPerThread.
  int64_t stepsOfRow() const;

  /// Reads through `product` in place of in * W^T; `weights` still sets the weight-dependent noise.
  /// ConfigError for a read in several blocks, whose products are not one.
  void run(const Context &context, MatrixView<const float> weights, const Product &product,
           MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample);

  /// Whether GPU kernels can combine this read with others: a single block that they can combine.
  bool canBeBatched(const Context &context) const;
  /// The read as those kernels take it; `out` may have no data, and is then not written. Requires
  /// canBeBatched().
  PlainRead plan(const Context &context, MatrixView<const float> weights,
                 MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample);
  /// Scratch memory of those kernels.
  Buffer<uint32_t> &marks() { return blocks_.front().marks(); }

  const IOParameters &parameters() const { return blocks_.front().parameters(); }
  /// The inputs of its blocks, in order.
  const std::vector<LineRange> &inputs() const { return inputs_; }

  /// The running means of average_abs_max, where the context's memory is, one of each block; empty if
  /// there are none.
  std::vector<float *> runningMeans();
  /// Saves / loads the running means, the only state of a read.
  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  void checkShapes(MatrixView<const float> weights, MatrixView<const float> in,
                   MatrixView<const float> out) const;
  bool isCut() const { return blocks_.size() > 1; }
  MatrixView<const float> weightsOf(size_t block, MatrixView<const float> weights) const;
  std::string prefixOf(size_t block, const std::string &prefix) const;

  int64_t inSize_;
  int64_t outSize_;
  std::vector<LineRange> inputs_, outputs_;
  std::vector<BlockRead> blocks_;  // by outputs, then inputs
  // Scratch of a read in blocks: what a block reads, and on a GPU, whose kernels want rows without
  // gaps, the inputs of each block and the sum of a row of blocks.
  Buffer<float> read_, packed_, sum_;
};

/// Both directions of one array [dSize, xSize]: y = W x and dx = W^T d, each with its periphery.
/// `limits` are those of the forward direction.
class ForwardBackwardPass {
 public:
  ForwardBackwardPass(const Context &context, const IOParameters &forward,
                      const IOParameters &backward, int64_t dSize, int64_t xSize, RandomKey key,
                      const ReadLimits &limits = {});

  AnalogRead &forward() { return forward_; }
  AnalogRead &backward() { return backward_; }
  const AnalogRead &forward() const { return forward_; }
  const AnalogRead &backward() const { return backward_; }

 private:
  AnalogRead forward_;
  AnalogRead backward_;
};

}  // namespace pulsora
