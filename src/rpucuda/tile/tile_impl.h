#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "array/events.h"
#include "core/buffer.h"
#include "core/cuda_api.h"
#include "core/scratch.h"
#include "linalg/math_util.h"
#include "periphery/additive_reads.h"
#include "tile/age_compensation.h"
#include "tile/tile.h"
#include "tile/tile_checks.h"

namespace pulsora {

/// A counter of a tile with its name in states. Beyond `most`, its random numbers would be another
/// purpose's (array/events.h).
struct NamedCounter {
  const char *name;
  uint64_t Counters::*member;
  uint64_t most;
};
inline constexpr NamedCounter kCounters[] = {
    {"forward_samples", &Counters::forwardSamples, kMaxSample + 1},
    {"backward_samples", &Counters::backwardSamples, kMaxSample + 1},
    {"update_samples", &Counters::updateSamples, kWritePulseSamples},
    {"mini_batches", &Counters::miniBatches, kRelaxEvents},
    {"events", &Counters::events, kOwnWrites}};

/// Samples that evaluations have read since training last read or updated the tile.
struct EvaluationCount {
  uint64_t trained = 0;  ///< samples of training when it began to count
  uint64_t samples = 0;

  static uint64_t trainedIn(const Counters &c) { return c.forwardSamples + c.updateSamples; }
  uint64_t at(const Counters &c) const { return trainedIn(c) == trained ? samples : 0; }
  uint64_t next(const Counters &c) const { return evaluationSample(trainedIn(c), at(c)); }
  void add(const Counters &c, uint64_t more) { *this = {trainedIn(c), at(c) + more}; }
};

/// Rows [first, first + count) of a mini-batch.
struct RowRange {
  int64_t first;
  int64_t count;

  template <class T>
  MatrixView<T> of(MatrixView<T> matrix) const {
    return matrix.block(first, 0, count, matrix.cols);
  }
};

/// The members of a Tile; for the sources in tile/ alone.
struct Tile::Impl {
  struct Changed;

  TileConfig config;
  Context context;
  TileKeys keys;
  Counters counters;
  EvaluationCount evaluation;
  Buffer<uint32_t> nonfiniteFlag;  // on a GPU; see Context
  std::unique_ptr<AnalogDevice> device;
  std::unique_ptr<AgeCompensation> compensation;
  std::shared_ptr<ScratchPool> scratch;  // of the context
  ScratchBuffer<float> added;            // a result that will be added to others
  bool isReleased = false;               // see releaseWeights()

  Impl(const TileConfig &config_, const Context &context_, int64_t dSize, int64_t xSize,
       const TileKeys &keys_)
      : config(config_), context(context_), keys(keys_) {
    if (!context.onCpu()) nonfiniteFlag = Buffer<uint32_t>::zeros(context, 1);
    context.nonfiniteFlag = nonfiniteFlag.data();
    context.scratch = nullptr;
    scratch = ScratchPool::of(context);
    const auto operation = longOperation();
    device = config.compound.make({context, dSize, xSize, config, keys});
    device->boundReads(context);
    compensation = std::make_unique<AgeCompensation>(context, *device);
    requireIntegers();
  }
  ~Impl() {
    if (!context.onCpu())
      detail::cudaFinish(context);  // storage may have been made in an earlier stream
  }
  Impl(const Impl &) = delete;
  Impl &operator=(const Impl &) = delete;

  /// ConfigError if products are not in integers where the configuration asks for them by number.
  void requireIntegers() {
    for (const AnalogRead *read : device->reads()) {
      const AutoInt &bits = read->parameters().weight_bits;
      const bool isAsked = !bits.automatic && bits.value < 32 && !read->parameters().is_perfect;
      PULSORA_CHECK(ConfigError, !isAsked || read->whyNoIntegers().empty(), "weight_bits is ",
                    bits.value,
                    ", but this read cannot be a product of integers: ", read->whyNoIntegers(),
                    "; change that, or set weight_bits to 'auto' or 32");
    }
  }
  /// StateError while the weights are released.
  void requireWeights() const {
    PULSORA_CHECK(
        StateError, !isReleased,
        "this process does not store the weights of this tile (weights = 'sharded'); read, write "
        "and save them in a block 'with pulsora.distributed.gathered(model):', which all "
        "processes enter");
  }
  /// On a GPU: waits; whether an input since the last call was not finite. Updates after that input
  /// have changed nothing.
  bool takeNonfinite() {
    if (context.onCpu() || detail::valueOnHost(context, context.nonfiniteFlag) == 0) return false;
    clearNonfinite();
    return true;
  }
  /// InputError for takeNonfinite(); requireWeights() anywhere.
  void reportNonfinite() {
    requireWeights();
    PULSORA_CHECK(InputError, !takeNonfinite(),
                  "an input of an earlier call on this tile was not finite; updates since then "
                  "have changed nothing (is the training diverging? lower the learning rate)");
  }
  /// For digital writes: waits for a GPU; InputError unless every value is finite.
  void requireFiniteNow(MatrixView<const float> a, const char *name) {
    reportNonfinite();
    requireFinite(context, a, name);
    PULSORA_CHECK(InputError, !takeNonfinite(), name,
                  " has values that are not finite; nothing was written");
  }
  /// InputError unless `more` can be added to a counter, which numbers random draws.
  static void requireRoom(uint64_t counter, int64_t more, const char *what) {
    pulsora::requireRoom(counter, static_cast<uint64_t>(more), kMostCounted, what);
  }
  /// requireRoom() for an update of so many samples and for the end of its mini-batch.
  void requireRoomForUpdate(int64_t samples) const {
    requireRoom(counters.updateSamples, samples, "samples of update");
    requireRoom(counters.miniBatches, 1, "mini-batches");
  }
  /// An operation around several, which draws computed cells once; null on a GPU, which is quick.
  std::unique_ptr<ScratchOperation> longOperation() {
    return context.onCpu() ? std::make_unique<ScratchOperation>(context) : nullptr;
  }
  /// A number that grows with every change of the weights.
  uint64_t changes() const {
    return counters.updateSamples + counters.miniBatches + counters.events;
  }
  /// The state of the device and of its compensation.
  void saveTo(State &state) const {
    device->saveTo(context, state, "");
    compensation->saveTo(context, state);
  }
  void loadFrom(const State &state) {
    device->loadFrom(context, state, "");
    compensation->loadFrom(context, state);
  }
  /// The context of a read whose rows are a part of a mini-batch of `rows` rows; see
  /// Context::countsRepeats.
  Context partOf(int64_t rows, bool countsRepeats) const {
    Context own = context;
    own.batchRows = rows;
    own.countsRepeats = countsRepeats;
    return own;
  }
  /// Calls read(context, counters at the first of the rows, rows) for blocks of rows, and counts
  /// the whole mini-batch. An evaluation is not among the counters.
  template <class Read>
  void readPart(Pass pass, MatrixView<const float> in, const char *name, const BatchPart &part,
                const Read &read) {
    const bool forward = pass == Pass::Forward;
    requirePart(part, in.rows, name, forward ? config.forward : config.backward,
                forward ? "forward" : "backward");
    uint64_t Counters::*samples = forward ? &Counters::forwardSamples : &Counters::backwardSamples;
    const int64_t points = forward ? pointsOfRead() : 1;
    PULSORA_CHECK(InputError,
                  in.rows % points == 0 && (points == 1 || part.size(in.rows) == in.rows),
                  "the array is read at ", points, " points together, and ", name, " has ", in.rows,
                  " rows; give a whole mini-batch for each point");
    const int64_t size = part.size(in.rows) / points;
    Counters &counted = readCounters();
    Counters start = counted;
    if (part.evaluation) {
      requireRoom(evaluation.at(counted), size, "samples of evaluations");
      start.*samples = evaluation.next(counted);
    } else {
      requireRoom(counted.*samples, size, forward ? "samples of forward" : "samples of backward");
    }
    start.batch = start.*samples;
    start.*samples += static_cast<uint64_t>(part.first);
    const ReadNumbers before = readNumbers();
    try {
      inBlocks(pass, in.rows, points == 1, [&](const RowRange &rows) {
        Counters first = start;
        first.*samples += static_cast<uint64_t>(rows.first);
        read(partOf(size, part.isWhole(in.rows)), first, rows);
      });
    } catch (...) {  // a refused read has not taken place
      before.restore();
      throw;
    }
    if (part.evaluation) {
      evaluation.add(counted, static_cast<uint64_t>(size));
    } else {
      counted.*samples += static_cast<uint64_t>(size);
    }
  }
  /// The points of a programmed array that a forward read sees, one part of its rows each.
  int64_t pointsOfRead() const {
    Programmable *array = device->programmable();
    return array ? array->pointsOfRead() : 1;
  }
  /// The counters that number reads: the tile's, or of a programmed array, its own.
  Counters &readCounters() {
    Programmable *array = device->programmable();
    Counters *own = array ? array->readCounters() : nullptr;
    return own ? *own : counters;
  }
  /// Calls work(rows) for all rows of a read in order, in blocks that scratch memory has room for.
  /// The bits do not depend on the blocks. Reads that need the whole mini-batch are not cut.
  template <class Work>
  void inBlocks(Pass pass, int64_t rows, bool mayBeCut, const Work &work) {
    const IOParameters &io = pass == Pass::Forward ? config.forward : config.backward;
    requireWeights();
    const bool averages = !io.is_perfect && io.noise_management == NoiseManagement::AverageAbsMax;
    const bool cut = mayBeCut && !averages && device->readsMayBeCut();
    const ScratchOperation operation(context);
    for (int64_t first = 0, most = rows;;) {
      most = reserveRows(std::min(most, rows - first), cut, blockOf_[pass == Pass::Forward ? 0 : 1],
                         [&](int64_t count) {
                           const ReadNumbers before = readNumbers();
                           try {
                             work(RowRange{first, count});
                           } catch (const OutOfMemoryError &) {
                             before.restore();
                             throw;
                           }
                         });
      first += most;
      if (first >= rows) return;
    }
  }
  /// Calls read(to) for some rows of `out`, or lets it read into scratch memory and adds the result
  /// to `out`. On a GPU, whose kernels need rows without gaps, `to` has none.
  template <class Read>
  void readInto(const Context &of, MatrixView<float> out, bool adds, const Read &read) {
    if (!adds && (of.onCpu() || out.isContiguous())) {
      read(out);
      return;
    }
    added.reserve(of, out.size());
    const MatrixView<float> result = rowMajor(added.data(), out.rows, out.cols);
    read(result);
    if (adds) {
      addScaled(of, {result.data, 1.0f, out});
    } else {
      copy(of, result, out);
    }
  }
  /// requireRoomForUpdate(), and whatever else the update()s by so many samples, at most `longest`
  /// in a call, and endBatch() would refuse; reserves their memory.
  void prepareUpdate(int64_t samples, int64_t longest, float lr) {
    requireWeights();
    requireRoomForUpdate(samples);
    const bool cut = device->updateMayBeCut(context);
    const int64_t most = cut && context.onCpu() ? std::min(longest, kLargestPart) : longest;
    const ScratchOperation operation(context);
    reserveRows(most, cut, blockOf_[kUpdate],
                [&](int64_t count) { device->prepareUpdate(context, samples, count, lr); });
  }
  /// Refuses what follow() would refuse, before anything changes, and reserves its memory.
  void prepareFollow() {
    requireWeights();
    requireRoom(counters.miniBatches, 1, "mini-batches");
    const ScratchOperation operation(context);
    device->prepareFollow(context);
  }
  void endBatch(float lr) {
    requireWeights();
    requireRoom(counters.miniBatches, 1, "mini-batches");
    const ScratchOperation operation(context);
    device->postUpdate(context, lr, counters);
    ++counters.miniBatches;
  }
  /// Calls update(context, rows) for all samples, in parts that scratch memory has room for; on the
  /// CPU, with calls of `pause`, if given, between parts that take a fraction of a second. The bits
  /// do not depend on the parts. Before anything changes, calls begin(whether there are several).
  template <class Begin, class Update>
  void updateInParts(int64_t samples, float lr, const Pause &pause, const Begin &begin,
                     const Update &update) {
    constexpr int64_t kFewSteps = int64_t{1} << 26;  // of cells
    requireWeights();
    const bool cut = device->updateMayBeCut(context);
    const bool pauses = pause && context.onCpu() && cut;
    const int64_t few = std::min(
        std::max<int64_t>(8, kFewSteps / (device->dSize() * device->xSize())), kLargestPart);
    const ScratchOperation operation(context);
    const bool inOne = !pauses || samples <= few;
    const int64_t most =
        reserveRows(inOne ? samples : std::min(samples, kLargestPart), cut, blockOf_[kUpdate],
                    [&](int64_t count) { device->reserveUpdate(context, count, lr); });
    int64_t part = inOne ? most : std::min(few, most);
    begin(part < samples);
    Context own = context;
    if (!own.onCpu() && part < samples) own.batchRows = samples;
    for (int64_t start = 0;;) {
      const int64_t count = std::min(part, samples - start);
      const auto began = std::chrono::steady_clock::now();
      update(own, RowRange{start, count});
      counters.updateSamples += static_cast<uint64_t>(count);
      start += count;
      if (start == samples) break;
      if (!pauses) continue;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      constexpr double kShort = 0.05;
      constexpr double kLong = 0.2;
      if (took.count() < kShort) part = std::min(2 * part, most);
      if (took.count() > kLong) part = std::max<int64_t>(part / 2, 1);
      pause();
    }
  }
  void clearNonfinite() {
    if (!context.onCpu()) detail::fillZero(context, context.nonfiniteFlag, nonfiniteFlag.bytes());
  }
  /// On a GPU, sets the context's non-finite flag, if it has one, for inputs of a read that are not
  /// finite, unless the periphery does so.
  static void flagNonfiniteRead(const Context &context, const IOParameters &periphery,
                                MatrixView<const float> in) {
    if (!context.onCpu() && context.nonfiniteFlag && periphery.is_perfect)
      detail::cudaCheckFinite(context, in);
  }

 private:
  static constexpr int64_t kLargestPart = 1024;  // samples

  // The rows that scratch memory had room for, at a limit.
  struct Block {
    int64_t limit = 0;
    int64_t rows = 0;
  };
  static constexpr size_t kUpdate = 2;
  Block blockOf_[3];  // of forward reads, backward reads and updates

  // Calls reserve(count) with `rows`, or with fewer until there is memory, if rows may be `cut`;
  // returns the last count. For a few rows, the limit is kept only if somebody has set one.
  template <class Reserve>
  int64_t reserveRows(int64_t rows, bool cut, Block &known, const Reserve &reserve) {
    constexpr int64_t kFewRows = 64;
    ScratchOperation &operation = *context.scratch;
    const int64_t limit = scratchLimit();
    int64_t count = cut && known.limit == limit ? std::min(rows, known.rows) : rows;
    for (;; count = (count + 1) / 2) {
      operation.setLimited(cut && (count > kFewRows || scratchLimitIsSet()));
      try {
        reserve(count);
        break;
      } catch (const OutOfMemoryError &) {
        if (!cut || count <= 1) throw;
        operation.takeBack();
        known = {limit, (count + 1) / 2};
      }
    }
    operation.setLimited(false);
    return count;
  }

  // Numbers of the device's reads, and their values at a time.
  struct ReadNumbers {
    std::vector<std::pair<float *, float>> means;
    std::vector<std::pair<uint64_t *, uint64_t>> repeats;
    Programmable *array;
    Programmable::TrainingRead trainingRead;  // of the array

    void restore() const {
      if (array) array->restore(trainingRead);
      for (const auto &[mean, before] : means) *mean = before;
      for (const auto &[count, before] : repeats) *count = before;
    }
  };

  // The numbers that a read may change; those of the device's reads on the CPU alone.
  ReadNumbers readNumbers() {
    Programmable *array = device->programmable();
    ReadNumbers numbers{
        {}, {}, array, array ? array->trainingRead() : Programmable::TrainingRead{0, true}};
    const auto changes = [](const IOParameters &io) {
      return !io.is_perfect && (io.noise_management == NoiseManagement::AverageAbsMax ||
                                io.bound_management != BoundManagement::None);
    };
    if (!context.onCpu() || !(changes(config.forward) || changes(config.backward))) return numbers;
    for (AnalogRead *read : device->reads()) {
      for (float *mean : read->runningMeans()) numbers.means.emplace_back(mean, *mean);
      for (uint64_t *count : read->repeats()) numbers.repeats.emplace_back(count, *count);
    }
    return numbers;
  }
};

}  // namespace pulsora
