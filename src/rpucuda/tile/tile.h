#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compounds/analog_device.h"
#include "core/check.h"
#include "core/container_views.h"
#include "tile/tile_config.h"

namespace pulsora {

class TileAdapter;
class TileProgramming;

/// Called now and then during a long operation. If it throws, the operation ends there.
using Pause = std::function<void()>;

/// The rows of a mini-batch that a read takes: [first, first + m) of `of` rows; other tiles in the
/// same state read the other rows. Random draws are the same as in a read of the whole mini-batch,
/// and the tile counts the whole mini-batch. By default m rows are the whole mini-batch.
///
/// An `evaluation` changes nothing that a training depends on: it is not counted, and has random
/// numbers of its own, which follow from the counters and from the number of samples that
/// evaluations have read since these last changed (evaluationSample()).
///
/// A backward read that `takesInfinite` makes the results of a row NaN if a value of it is not
/// finite, and reads zeros in its place. For other reads such a value is an error.
struct BatchPart {
  int64_t first = 0;
  int64_t of = -1;
  bool evaluation = false;
  bool takesInfinite = false;

  int64_t size(int64_t rows) const { return of < 0 ? rows : of; }
  bool isWhole(int64_t rows) const { return first == 0 && size(rows) == rows; }
};

/// Whether a mini-batch ends with an update.
enum class BatchEnd {
  Now,   ///< the update is the whole mini-batch, or its last part
  Later  ///< other parts follow, or endBatch()
};

/// The changes of a tile that are packed.
enum class ChangedParts {
  All,     ///< tensors, then the numbers that the host keeps
  Tensors  ///< what is in the memory of the tile's backend
};

/// A crossbar tile [dSize, xSize] with its periphery: the only class a caller needs. Inputs are
/// checked here, before anything changes. A Tile is not copied; save and load its state instead.
/// The calls of a tile that has been moved from are InputErrors.
class Tile final {
 public:
  /// Validates `config`, then samples the cells. `tileId` distinguishes tiles that share a seed.
  Tile(int64_t dSize, int64_t xSize, const TileConfig &config, uint64_t seed, uint32_t tileId = 0,
       const Context &context = {});
  ~Tile();
  Tile(Tile &&) noexcept;
  Tile &operator=(Tile &&) noexcept;

  int64_t dSize() const;
  int64_t xSize() const;
  const TileConfig &config() const;
  const Context &context() const;
  /// Threads, instruction set and stream may change at any time; the backend may not (see to()).
  void setContext(const Context &context);

  /// y [m, dSize] = W x for x [m, xSize]. InputError for rows that do not fit `part`; ConfigError
  /// for less than the whole mini-batch with noise_management average_abs_max.
  void forward(MatrixView<const float> x, MatrixView<float> y, const BatchPart &part = {});
  /// Repeats the read that began at sample number `firstSample`, with the same random draws;
  /// counters do not change. `of` is the size of the mini-batch that x is a part of; 0: x is the
  /// whole. ConfigError with noise_management average_abs_max, whose scale depends on the reads so
  /// far.
  void forwardAgain(MatrixView<const float> x, MatrixView<float> y, uint64_t firstSample,
                    int64_t of = 0);
  /// dx [m, xSize] = W^T d for d [m, dSize]. Errors like forward().
  void backward(MatrixView<const float> d, MatrixView<float> dx, const BatchPart &part = {});
  /// W <- W - lr d^T x by pulses, and the end of the mini-batch, as endBatch(). Parts of a
  /// mini-batch are updates with BatchEnd::Later, but for the last, or before endBatch(); bits do
  /// not depend on the parts. InputError for wrong shapes or non-finite values; ConfigError for a
  /// bad lr.
  ///
  /// On the CPU, `pause` is called between parts of a long update; if it throws, the tile has been
  /// updated by the samples before, counters() has their number, and the mini-batch is still open.
  /// (Not called for devices with noise_merge = "batch", whose updates must not be split.) It is
  /// still open, too, if its end runs out of memory.
  void update(MatrixView<const float> x, MatrixView<const float> d, float lr,
              BatchEnd end = BatchEnd::Now, const Pause &pause = {});
  /// Ends a mini-batch whose updates said BatchEnd::Later: decay, diffusion, and transfers that are
  /// due at its end.
  void endBatch(float lr);

  /// Lets cells follow the digital weight `master` [dSize, xSize] by pulses, and ends a mini-batch.
  /// ConfigError for a tile without this (CompoundFacts::follows); InputError for a wrong shape or,
  /// on the CPU, values that are not finite. Nothing has changed then.
  void follow(MatrixView<const float> master);
  /// Programs the tile's references to the symmetric points of its cells, found by `pairs` of
  /// pulses up and down; 0 is exact. Weights stay, within the bounds. Returns the error that is
  /// left. ConfigError for tiles without references, and cells without symmetric points.
  Value::Map calibrate(int64_t pairs);

  /// Writes the weights [dSize, xSize] that a perfect read would see now to `out`.
  void getWeights(MatrixView<float> out) const;
  /// Makes the tile represent `weights` [dSize, xSize] as closely as the bounds of its cells allow.
  void setWeights(MatrixView<const float> weights);

  /// Names of the tile's pulsed arrays, in order: such as "visible"; none for
  /// floating-point weights.
  std::vector<std::string> arrayNames() const;
  /// The array called `name`; ConfigError if the tile has none, here and below.
  const PulsedDevice &array(const std::string &name) const;
  void getArray(const std::string &name, MatrixView<float> out) const;
  /// Writes one array digitally, each cell within its bounds; other arrays stay.
  void setArray(const std::string &name, MatrixView<const float> weights);
  /// Resets the columns [firstCol, firstCol + count) of an array, taken modulo its width, each cell
  /// with the given probability, to the device's reset value with its spreads.
  void resetColumns(const std::string &name, int64_t firstCol, int64_t count, float probability);

  /// Whether the tile has a low-rank adapter, and the adapter (tile/tile_adapter.h); ConfigError
  /// without one.
  bool hasAdapter() const;
  TileAdapter adapter();

  /// Whether the tile's weights can be programmed into an array that drifts, and that array
  /// (tile/tile_programming.h); ConfigError without one.
  bool isProgrammable() const;
  TileProgramming programming();

  /// Whether cells of the tile drift after they were pulsed (docs/reference/retention.md).
  bool retains() const;
  /// The errors of drift(); nothing changes.
  void requireAge(double time, AgeFrom from = AgeFrom::LastPulse) const;
  /// Lets reads see the pulsed arrays `time` seconds after the last pulse of each; another `redraw`
  /// is another reading at that time. What they see follows from weights, seed, time and redraw
  /// alone; stored weights stay. Evaluations count their samples anew. ConfigError, before anything
  /// changes, for a tile without retention and for a time of which a noise model has no numbers.
  void drift(double time, uint64_t redraw = 0, AgeFrom from = AgeFrom::LastPulse);
  /// The age of each array, in the order of arrayNames(); 0 for one without retention.
  std::vector<Age> ages() const;
  /// Lets reads see each array at its own age. Errors are those of drift(), and ConfigError for
  /// another number of ages.
  void setAges(const std::vector<Age> &ages);
  /// The model, time and redraw of each array that drifts, by the array's name.
  Value::Map retention() const;
  /// The factor on each output that compensates drift; 1 without compensation.
  std::vector<float> ageCompensation() const;

  /// Settings in force and warnings for an update by (x, d, lr); nothing changes.
  Value::Map explain(MatrixView<const float> x, MatrixView<const float> d, float lr) const;
  /// Numbers gathered so far, such as pulses, saturated cells and bytes of memory.
  Value::Map statistics() const;
  /// Bytes of weights, cells and buffers that the tile holds now.
  size_t memoryBytes() const;
  /// Counts of what the hardware did (compounds/hardware_counts.h). Evaluations, and reads
  /// that are made again in the simulation alone, are left out.
  Value::Map hardwareCounts() const;

  uint64_t seed() const;
  uint32_t tileId() const;
  /// Seed of the cells and of the fixed spreads of lines and converters: seed(), unless reseed()
  /// has kept the cells.
  uint64_t cellSeed() const;
  const Counters &counters() const;

  /// Gives the tile the random numbers of another seed from now on; counters, weights and cells
  /// stay. With `cells`, cells and the fixed spreads of lines and converters are sampled anew, and
  /// the weights of each array are written to the new cells, within their bounds. Reads that
  /// projection = 'reuse' has stored for an update are lost. StateError if a weight is not finite.
  void reseed(uint64_t seed, bool cells = false);
  /// Makes a tile with the cells, weights, counters and seeds of this tile and another periphery.
  /// ConfigError if the periphery does not suit the tile.
  Tile withPeriphery(const TilePeriphery &periphery) const;

  /// Number of the next sample in an evaluation, which forwardAgain() takes.
  uint64_t evaluationSample() const;
  /// Samples that evaluations have read since the counters that number them changed. States do not
  /// contain this number; whoever copies a tile by its state may set it.
  uint64_t evaluated() const;
  void setEvaluated(uint64_t samples);

  /// The complete state, from which a tile continues to the bit, signed (storage/state.h).
  /// StateError if a weight is not finite: no tile could continue from such a state.
  State state() const;
  /// Restores `state`. StateError, changing nothing, unless the state is undamaged and from a tile
  /// of equal sizes, configuration and seed. States of versions 1 and 2, which had no checksum,
  /// load too.
  void loadState(const State &state);
  /// Frees the memory of the parameters of cells, which are drawn again from now on where an
  /// operation touches them; no bit changes. Cells that a caller or a file has set stay stored.
  void computeCells();
  /// Frees the memory of weights and of all other tensors that packChanges() writes, until
  /// unpackChanges() brings them back from another process. Meanwhile whatever needs them is a
  /// StateError, before anything changes; counters, numbers and sizes are there.
  void releaseWeights();
  /// Number of floats that packChanges() writes.
  int64_t changesSize(ChangedParts parts = ChangedParts::All) const;
  /// Writes everything that updates may change (weights of the arrays, counters, sums of
  /// statistics) to memory of the tile's backend, for a tile of the same sizes, configuration and
  /// seed that was in the same state before the last updates. Returns the end of the written
  /// memory. To be called between mini-batches. Without the numbers that the host keeps, nothing
  /// waits for the GPU.
  float *packChanges(float *to, ChangedParts parts = ChangedParts::All) const;
  /// Restores the changes that packChanges() wrote to `from`, and returns their end. StateError,
  /// changing nothing, if the tile that wrote them has other sizes, other arrays or another seed.
  /// Configurations are not compared.
  const float *unpackChanges(const float *from, ChangedParts parts = ChangedParts::All);
  /// The numbers that the host keeps and updates may change, for restoreNumbers() of a tile to
  /// which the tensors go by ChangedParts::Tensors. restoreNumbers() returns how many of `count` it
  /// took; the errors of unpackChanges(), and InputError if there are too few.
  std::vector<uint64_t> changedNumbers() const;
  size_t restoreNumbers(const uint64_t *from, size_t count);
  /// Makes the tile that a state belongs to, in that state. StateError if the state is damaged.
  static Tile fromState(const State &state, const Context &context = {});

 private:
  friend class TileAdapter;
  friend class TileProgramming;
  friend class TileGrid;
  struct Impl;
  Tile(int64_t dSize, int64_t xSize, const TileConfig &config, const TileKeys &keys,
       const Context &context);
  /// A tile of another configuration, with the same compound, or of other keys in this state.
  Tile variant(const TileConfig &config, const TileKeys &keys) const;
  State collect(bool shapesOnly) const;
  std::string explainProducts() const;
  void explainRetention(Value::Map &map) const;
  void take(const State &state, const State &mine);
  /// forward(), backward() and update() of inputs whose shapes, and values on the CPU, the caller
  /// has checked. A read `adds` its results to those in y or dx, or replaces them.
  void forwardChecked(MatrixView<const float> x, MatrixView<float> y, const BatchPart &part,
                      bool adds);
  void backwardChecked(MatrixView<const float> d, MatrixView<float> dx, const BatchPart &part,
                       bool adds);
  void updateChecked(MatrixView<const float> x, MatrixView<const float> d, float lr,
                     const Pause &pause);
  void followChecked(MatrixView<const float> master);
  void requireForward(MatrixView<const float> x, MatrixView<const float> y) const;
  void read(const Context &context, MatrixView<const float> x, MatrixView<float> y,
            const Counters &counters);
  /// The members; InputError where they have been moved to another tile.
  class Members {
   public:
    Members &operator=(std::unique_ptr<Impl> made);
    Impl &operator*() const {
      PULSORA_CHECK(InputError, made_ != nullptr,
                    "this tile has been moved from; use the tile that it was moved to");
      return *made_;
    }
    Impl *operator->() const { return &**this; }

   private:
    std::unique_ptr<Impl> made_;
  };
  Members impl_;
};

}  // namespace pulsora
