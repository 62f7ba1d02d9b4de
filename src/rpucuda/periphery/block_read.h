#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "array/array_keys.h"
#include "core/buffer.h"
#include "core/context.h"
#include "core/scratch.h"
#include "core/view.h"
#include "linalg/integers.h"
#include "numerics/random.h"
#include "periphery/further_products.h"
#include "periphery/one_hot_read.h"
#include "periphery/read_stages.h"
#include "storage/state.h"

namespace pulsora {

/// The noise management of a direction as numbers.
ScaleRule scaleRule(const IOParameters &parameters);

/// The analog product of one block of cells with its periphery: out[m, outSize] from in[m, inSize],
/// one direction.
///
/// Order of effects, for single vectors and batches alike, on CPU and CUDA (docs/reference/io.md):
/// scale by noise management -> DAC (quantise, clip, noise, asymmetry) -> matrix product -> IR drop
/// -> voltage offset and series resistance -> weight noise -> output nonlinearity and asymmetry ->
/// output noise -> ADC (quantise, clip) -> scale back and out_scale. Bound management repeats a
/// sample's read with a larger scale until the ADC does not clip. Every draw is keyed by (line,
/// firstSample + row), so a batch may be split anywhere.
class BlockRead {
 public:
  /// The matrix product: fills the ideal sums [m, outSize] from the converted inputs [m, inSize].
  /// Row i is always sample i of the mini-batch. It may be called several times for one mini-batch.
  using Product = std::function<void(MatrixView<const float> in, MatrixView<float> out)>;

  /// Samples the fixed spreads of lines and converters (purpose IoConstruct). `pass`
  /// selects the noise streams.
  BlockRead(const Context &context, const IOParameters &parameters, Pass pass, int64_t inSize,
            int64_t outSize, const ReadKeys &keys);

  /// Makes products of this read in integers from now on, if its parameters and size allow: no
  /// weight that it will multiply with is beyond +-bound. Before, and with a bound of infinity,
  /// products are in floating point.
  void setWeightBound(double bound);
  /// The reason why products are not in integers; empty if they are.
  std::string whyNoIntegers() const;

  /// Reserves storage for reads of up to `rows` samples with weights of this shape: the reads then
  /// cannot run out of memory. `product`: whether the reads go through a Product.
  void reserve(const Context &context, MatrixView<const float> weights, int64_t rows,
               bool product = false);

  /// out = in * W^T with W [outSize, inSize] given in any layout, for rows [firstRow, firstRow +
  /// in.rows) of a mini-batch, for all of which reserve() has been called. If rowsAreApart(),
  /// threads may read several parts at the same time.
  void runRows(const Context &context, MatrixView<const float> weights, MatrixView<const float> in,
               MatrixView<float> out, uint64_t firstSample, int64_t firstRow);
  /// Whether rows can be read apart: on a CPU, if a read takes one product and no whole mini-batch.
  bool rowsAreApart(const Context &context) const;
  /// The work of one row, see kStepsPerThread.
  int64_t stepsOfRow() const {
    const auto passes = static_cast<int64_t>(slices_.empty() ? 1 : slices_.size());
    return passes * (inSize_ * outSize_ / 8 + 4 * (inSize_ + outSize_));
  }

  /// Reads a mini-batch through `product` in place of in * W^T; `weights` still sets the
  /// weight-dependent noise.
  void run(const Context &context, MatrixView<const float> weights, const Product &product,
           MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample);

  /// Whether GPU kernels can combine this read with others: it must be a PlainRead that is not
  /// perfect, needs no input sums or average_abs_max, and if products are reproducible is one of
  /// integers.
  bool canBeBatched(const Context &context) const;
  /// Whether the product is one of integers.
  bool readsIntegers() const { return inIntegers(false); }
  /// The read as an argument of such kernels; `out` may have no data, and is then not written.
  /// Requires canBeBatched().
  PlainRead plan(const Context &context, MatrixView<const float> weights,
                 MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample);
  /// Scratch memory of such kernels.
  Buffer<uint32_t> &marks() { return scratch_.marks; }

  const IOParameters &parameters() const { return parameters_; }

  /// Reads of single inputs of 1 by an array with these weights, one after another from sample
  /// `firstSample` on. Not for a perfect read.
  OneHotRead oneHot(MatrixView<const float> weights, uint64_t firstSample);
  /// Draws the noise of reads with another key from now on.
  void setNoiseKey(RandomKey key);
  /// Samples the fixed spreads of lines and converters with this key.
  void drawSpreads(const Context &context, RandomKey spreads);
  /// Variances of the cells [outSize, inSize] in a read, by which every read draws weight noise of
  /// its own in place of `w_noise`; null: none. Borrowed. Not for a perfect read.
  void setCellVariance(const float *variance);
  /// Factors [outSize] of an amplifier between the output noise and the ADC of each output, which
  /// results are divided by; null: 1. Borrowed. Not for a perfect read.
  void setOutputGains(const float *gains);

  /// AnalogRead::convertInputs() of this block.
  void convertInputs(const Context &context, MatrixView<const float> in, MatrixView<float> out);

  /// The running mean of average_abs_max, in the context's memory; null if there is none.
  float *runningMean() {
    return parameters_.noise_management == NoiseManagement::AverageAbsMax ? averageMax_.data()
                                                                          : nullptr;
  }
  /// Address of the number of rows that bound management has read again, in the context's memory;
  /// null if it never does. Evaluations do not count (see also Context::countsRepeats).
  uint64_t *repeats() { return repeats_.data(); }
  const uint64_t *repeats() const { return repeats_.data(); }
  /// Name of the state value of this number, which states of earlier versions lack.
  static constexpr const char *kRepeats = "repeated_reads";
  int64_t inSize() const { return inSize_; }
  int64_t outSize() const { return outSize_; }

  /// Saves / loads the running mean and the number of repeats, the only state of a read.
  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  /// The memory of a read while it runs.
  struct Scratch {
    // Inputs as the array sees them (in integers: the levels of the DAC), as the product in
    // integers takes them, and in another form (InputForm).
    ScratchBuffer<float> converted;
    ScratchBuffer<int16_t> levels;
    ScratchBuffer<uint8_t> bytes;
    ScratchBuffer<uint8_t> digits;  // of the weights
    ScratchBuffer<float> reformed;
    ScratchBuffer<float> sums, absSums, lateSums, squareSums;
    ScratchBuffer<int64_t> partial;
    ScratchBuffer<float> inputSums, inputSquares;  // per row
    ScratchBuffer<float> scale, worstScale;        // per row
    ScratchBuffer<int32_t> round, clipped, list;   // per row
    ScratchBuffer<float> sliceInputs, sliceOutputs;
    ScratchBuffer<float> magnitudes, deviation;  // of the weights
    ScratchBuffer<float> wirePivots, wireVoltages;
    Buffer<uint32_t> marks;  // on a GPU, of groups of rows; zero before and after a read
    int64_t parts = 0;       // per sum, on a GPU
    int64_t digitBytes = 0;  // of `digits` in use
  };

  void readBatch(const Context &context, MatrixView<const float> weights, const Product *product,
                 MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample,
                 int64_t firstRow);
  void readSlices(const Context &context, MatrixView<const float> weights, const Product *product,
                  MatrixView<const float> in, MatrixView<float> out, uint64_t firstSample,
                  int64_t firstRow);
  void reserveSlices(const Context &context, MatrixView<const float> weights, int64_t rows,
                     bool product);
  bool measureAverages(const Context &context, const InputStage &input, uint64_t firstSample);
  InputConverter levelConverter() const;
  InputStage inputStage(MatrixView<const float> in, uint64_t firstSample, bool inIntegers,
                        int64_t firstRow = 0);
  OutputStage outputStage(MatrixView<float> out, uint64_t firstSample, bool inIntegers,
                          int64_t firstRow = 0);
  OutputStage converterStage(OutputStage stage) const;
  bool hasAmplifier() const;
  void prepareWeights(const Context &context, MatrixView<const float> weights);
  void multiply(const Context &context, MatrixView<const float> weights, const Product *product,
                const RowList &list, int64_t firstRow);
  void multiplyReformed(const Context &context, InputForm form, MatrixView<const float> weights,
                        int64_t rows, float unit, float *sums);
  void multiplyIntegers(const Context &context, MatrixView<const float> weights, int64_t firstRow,
                        MatrixView<float> out);
  void applyAsymmetry(const Context &context, int64_t rows);
  void reserveWires(const Context &context, int64_t samples, bool product);
  void prepareWires(const Context &context, MatrixView<const float> weights);
  void solveWires(const Context &context, MatrixView<const float> weights,
                  MatrixView<const float> drivers, MatrixView<float> sums);
  bool isPlain(bool product) const;
  int64_t partsOf(const Context &context, MatrixView<const float> weights, bool product,
                  int64_t rows) const;
  PlainRead plainRead(MatrixView<const float> weights, const InputStage &input,
                      const OutputStage &output, int repeats);
  static constexpr int64_t kByteInputs = 16;  // that a GPU copies at once
  /// The levels of `rows` rows for the tensor cores.
  LevelBytes levelBytes(int64_t rows);
  bool hasLevelsOfOneByte() const { return parameters_.largestLevel() <= 127; }
  bool needsInputSums() const;
  int mostRepeats(const InputStage &input) const;
  uint64_t *repeatCounter(const Context &context, uint64_t firstSample);
  RowList rowsToRepeat(const Context &context, const RowState &state, int64_t rows,
                       int64_t firstRow, bool compact);
  MatrixView<const float> magnitudes() const;

  int passCount() const { return parameters_.splitsSigns() ? 2 : 1; }
  /// Whether a read multiplies integers; a Product takes inputs in floating point.
  bool inIntegers(bool product) const { return integers_.exist() && !product; }
  /// How many sums an output has: products of integers take negative inputs apart, if these count
  /// otherwise than positive ones.
  int sumCount(bool inIntegers) const {
    return inIntegers && parameters_.inp_asymmetry != 0.0f ? 2 : passCount();
  }
  /// The input of one level of the DAC.
  float levelStep() const { return static_cast<float>(parameters_.inputStep()); }
  /// Whether the converted inputs are needed as floating-point numbers.
  bool needsFloats(bool inIntegers) const;
  bool managesBounds() const;
  bool hasPcmNoise() const;
  /// Whether the weight noise of each cell has a strength of its own.
  bool hasCellNoise() const { return variance_ || hasPcmNoise(); }
  float weightNoise() const { return variance_ ? 1.0f : parameters_.w_noise; }
  MatrixView<const float> cellVariances() const;

  IOParameters parameters_;
  Pass pass_;
  int64_t inSize_;
  int64_t outSize_;
  RandomKey key_;
  bool onCpu_;
  double weightBound_ = std::numeric_limits<double>::infinity();
  IntegerWeights integers_;
  float gain_ = 1.0f;  // of the output amplifier
  const float *variance_ = nullptr;
  const float *gains_ = nullptr;
  Buffer<float> lines_;            // noise, offset and bend of each output
  Buffer<float> asymmetry_;        // of the cells at negative inputs; empty where there is none
  Buffer<float> averageMax_;       // running mean of average_abs_max
  Buffer<uint64_t> repeats_;       // one; empty without bound management
  std::vector<BlockRead> slices_;  // of the inputs, each with noise of its own; empty: one read
  Scratch scratch_;
};

}  // namespace pulsora
