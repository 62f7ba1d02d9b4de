#pragma once

#include <string>
#include <vector>

#include "periphery/block_read.h"

namespace pulsora {

/// Most lines of a physical array, as inputs and as outputs of a read; 0 is no limit.
struct ReadLimits {
  int64_t inputs = 0;
  int64_t outputs = 0;

  /// The limits of the same array, read in the other direction.
  ReadLimits reversed() const { return {outputs, inputs}; }
};

/// Some neighbouring lines.
struct LineRange {
  int64_t first;
  int64_t count;
};

/// Least number of ranges of at most `limit` lines that hold `size` lines; a limit of 0 is none.
int64_t countOfRanges(int64_t size, int64_t limit);
/// Cuts `size` lines evenly into countOfRanges(size, limit) ranges.
std::vector<LineRange> cutLines(int64_t size, int64_t limit);

/// Counts of the hardware's reads of a matrix. A read in several blocks reads an array for each,
/// and a read of positive and negative inputs apart reads each array twice.
struct ReadCounts {
  uint64_t samples = 0;     ///< reads of the whole matrix, without repeats
  uint64_t repeats = 0;     ///< reads of a block that bound management made again
  uint64_t arrayReads = 0;  ///< reads of a physical array
  uint64_t cellReads = 0;   ///< reads of a cell
  uint64_t dac = 0;         ///< conversions by DACs, one for each input line of an array's read
  uint64_t adc = 0;         ///< conversions by ADCs
  uint64_t arrays = 0;      ///< physical arrays that are read at the same time
};

/// The analog product of one matrix of cells [outSize, inSize] with its periphery: out[m, outSize]
/// from in[m, inSize], one direction.
///
/// A matrix beyond `limits` lies on several physical arrays, its blocks (cutLines()). Each block
/// has a BlockRead of its own: scales, converters, noise, running mean, and random numbers. Reads
/// of blocks with the same outputs are added digitally, in the order of their inputs. A read of one
/// block is its BlockRead.
class AnalogRead {
 public:
  using Product = BlockRead::Product;

  /// Block 0 draws with `keys`, the others with keys that follow from it. `pass` selects the noise
  /// streams.
  AnalogRead(const Context &context, const IOParameters &parameters, Pass pass, int64_t inSize,
             int64_t outSize, const ReadKeys &keys, const ReadLimits &limits = {});

  /// BlockRead::setWeightBound() and whyNoIntegers() for all blocks.
  void setWeightBound(double bound);
  std::string whyNoIntegers() const;
  /// Whether the parameters ask for products of integers, and allow them.
  bool asksForIntegers() const { return parameters().integerBits() > 0; }

  /// Reserves storage for run() of up to `rows` samples with weights of this shape: run() then
  /// cannot run out of memory. `product`: whether run() will read through a Product.
  void reserve(const Context &context, MatrixView<const float> weights, int64_t rows,
               bool product = false);

  /// out = in * W^T with W [outSize, inSize] given in any layout (a transposed view for the
  /// backward direction).
  void run(const Context &context, MatrixView<const float> weights, MatrixView<const float> in,
           MatrixView<float> out, uint64_t firstSample);

  /// run() for rows [firstRow, firstRow + in.rows) of a mini-batch, for all of which reserve() has
  /// been called. If rowsAreApart(), threads may read several parts at the same time.
  void runRows(const Context &context, MatrixView<const float> weights, MatrixView<const float> in,
               MatrixView<float> out, uint64_t firstSample, int64_t firstRow);
  /// Whether rows can be read apart: on a CPU, if a read takes one product and no whole mini-batch.
  bool rowsAreApart(const Context &context) const;
  /// The work of one row, see kStepsPerThread.
  int64_t stepsOfRow() const;

  /// Reads through `product` in place of in * W^T; `weights` still sets the weight-dependent noise.
  /// Throws ConfigError for a read in several blocks, which has several products.
  void run(const Context &context, MatrixView<const float> weights, const Product &product,
           MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample);

  /// Whether GPU kernels can combine this read with others: a single block that they can combine.
  bool canBeBatched(const Context &context) const;
  /// Whether they can combine it with another one, whose product must be of the same kind.
  bool canBeBatchedWith(const Context &context, const AnalogRead &other) const;
  /// The read as an argument of such kernels; `out` may have no data, and is then not written.
  /// Requires canBeBatched().
  PlainRead plan(const Context &context, MatrixView<const float> weights,
                 MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample);
  /// Scratch memory of such kernels.
  Buffer<uint32_t> &marks() { return blocks_.front().marks(); }

  /// BlockRead::oneHot() of a read in a single block; ConfigError for one in several.
  OneHotRead oneHot(MatrixView<const float> weights, uint64_t firstSample);
  /// Draws the noise of reads with another key from now on.
  void setNoiseKey(RandomKey key);
  /// BlockRead::drawSpreads(), with keys for the blocks that follow from `spreads`.
  void drawSpreads(const Context &context, RandomKey spreads);
  /// BlockRead::setCellVariance() of a read in a single block; ConfigError for one in several.
  void setCellVariance(const float *variance);
  /// BlockRead::setOutputGains() of a read in a single block; ConfigError for one in several.
  void setOutputGains(const float *gains);
  /// Writes the inputs that the array sees of `in`, in units of `in`: scaled as for a first read
  /// and converted, without noise. `in` itself for a perfect read.
  void convertInputs(const Context &context, MatrixView<const float> in, MatrixView<float> out);

  const IOParameters &parameters() const { return blocks_.front().parameters(); }
  /// The ranges of inputs of the blocks, in order.
  const std::vector<LineRange> &inputs() const { return inputs_; }

  /// The running means of average_abs_max, one of each block, in the context's memory; empty if
  /// there are none.
  std::vector<float *> runningMeans();
  /// BlockRead::repeats() of the blocks that have them.
  std::vector<uint64_t *> repeats();
  /// Counts of `samples` reads of the whole matrix, and of the repeats so far; waits for a GPU.
  ReadCounts counts(const Context &context, uint64_t samples) const;
  /// Saves / loads the running means and the numbers of repeats, the only state of a read.
  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  void checkShapes(MatrixView<const float> weights, MatrixView<const float> in,
                   MatrixView<const float> out) const;
  bool isCut() const { return blocks_.size() > 1; }
  MatrixView<const float> weightsOf(size_t block, MatrixView<const float> weights) const;
  std::string prefixOf(size_t block, const std::string &prefix) const;

  /// Number of a block's keys. Cells have the same properties in both directions, and so their
  /// blocks have the same keys.
  uint32_t numberOf(size_t block) const;

  Pass pass_;
  int64_t inSize_;
  int64_t outSize_;
  std::vector<LineRange> inputs_, outputs_;
  std::vector<BlockRead> blocks_;  // by outputs, then inputs
  // Scratch of a read in blocks: the result of a block, and on a GPU, whose kernels need rows
  // without gaps, the inputs of each block and the sum of a row of blocks.
  ScratchBuffer<float> read_, packed_, sum_;
};

/// Both directions of one array [dSize, xSize]: y = W x and dx = W^T d, each with its periphery.
/// `limits` apply to the forward direction.
class ForwardBackwardPass {
 public:
  ForwardBackwardPass(const Context &context, const IOParameters &forward,
                      const IOParameters &backward, int64_t dSize, int64_t xSize,
                      const ReadKeys &keys, const ReadLimits &limits = {});

  AnalogRead &forward() { return forward_; }
  AnalogRead &backward() { return backward_; }
  const AnalogRead &forward() const { return forward_; }
  const AnalogRead &backward() const { return backward_; }

 private:
  AnalogRead forward_;
  AnalogRead backward_;
};

}  // namespace pulsora
