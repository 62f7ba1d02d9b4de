#pragma once

#include <memory>
#include <string>

#include "array/cell_functors.h"
#include "array/cell_planes.h"
#include "array/device_model.h"
#include "array/line_visits.h"
#include "array/retention.h"
#include "core/buffer.h"
#include "core/context.h"
#include "core/scratch.h"
#include "core/view.h"
#include "pulses/bit_line_maker.h"
#include "storage/state.h"

namespace pulsora {

struct ArrayPulses;

/// How often an array's cells are touched: pulsed, written, reset or relaxed. With cells = "auto",
/// the parameters of cells that are touched seldom are computed.
enum class Touched { Often, Seldom };

/// The time at which bounds are applied after an outer product in floating point.
enum class Bounds {
  Never,
  Now,
  /// At the end of the mini-batch, so that splitting the mini-batch over calls does not matter.
  Later,
};

/// One array [rows, cols] of cells of one device model: weights, sampled cells, and their response
/// to pulses. Of any shape: a tile's weights, or one factor of an adapter.
class PulsedDevice {
 public:
  /// Name of a state value that exists only while bounds are still to be applied.
  static constexpr const char *kBoundsDue = "bounds_due";
  /// Name of the state value slotCount(), which states of earlier versions lack.
  static constexpr const char *kSlots = "pulse_slots";

  /// Samples the cells. `key` must be this array's own (makeKey). With a construction_seed, cells
  /// depend on it and on `slot` alone, the array's place in its tile. Weights start at 0, confined
  /// to the bounds.
  PulsedDevice(const Context &context, const DeviceParams &params, int64_t rows, int64_t cols,
               RandomKey key, uint32_t slot = 0);
  /// Samples the cells by a key of their own.
  PulsedDevice(const Context &context, const DeviceParams &params, int64_t rows, int64_t cols,
               RandomKey key, RandomKey cellKey, Touched touched = Touched::Often);
  /// The key of cells that are sampled with a construction_seed, or else by `key`.
  static RandomKey cellKey(const PulsedParams &params, RandomKey key, uint32_t slot);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t size() const { return rows_ * cols_; }
  const DeviceParams &params() const { return params_; }
  float granularity() const { return params_.granularity(); }

  /// The weights that a read sees, [rows, cols] on the context's backend: the stored weights, less
  /// their references and with the signs of their columns, if there are any, and after the drift of
  /// their age.
  MatrixView<const float> weights() const;
  /// A number that grows whenever weights() may have changed, in elements or address.
  uint64_t changes() const { return changes_; }
  /// Gives each cell a permanent reference: a second conductance, never pulsed, that is subtracted
  /// from the stored weight wherever weights are read, and added where they are written. It is the
  /// cell's symmetric point (devices/symmetric_point.h): exact, or with `pairs` > 0 as found by so
  /// many pulses up and down, with cycle noise drawn by `key`, which must serve no other purpose.
  /// Weights stay as they are, within the bounds. To be called before the first write.
  void addReferences(const Context &context, int64_t pairs, RandomKey key);
  /// Gives each column a sign, 1 at first, with which it is read and written. Operations on cells
  /// themselves, such as pulses, outer products, decay and addWeights(), ignore the sign, as the
  /// drivers of a column would: callers multiply their factors by columnSigns().
  void addColumnSigns(const Context &context);
  /// Multiplies the signs of columns by `factors`, each 1 or -1; cells stay: weights change sign.
  void turnColumns(const Context &context, const float *factors);
  /// The signs of the columns [cols]; null without addColumnSigns().
  const float *columnSigns() const { return signs_.data(); }
  /// Lets cells drift, if the retention has a noise model. `key` must be that of the cells (Role
  /// Cells); what a cell keeps is drawn by it. To be called before the first age.
  void retain(const Retention &retention, RandomKey key);
  bool retains() const { return ageing_ != nullptr; }
  /// The noise model of the drift; only if retains().
  const NoiseModelParams &retentionModel() const { return ageing_->model; }
  /// The age at which reads see the cells; 0 s without retention.
  const Age &age() const;
  bool isAged() const { return ageing_ && ageing_->age.time > 0.0; }
  /// ConfigError for a time of which the noise model has no numbers.
  void requireAge(double time) const;
  /// Reserves storage for drift(), which then cannot run out of memory.
  void reserveAge(const Context &context) {
    if (ageing_) ageing_->seen.reserve(context, size());
  }
  /// Lets reads see the cells at an age, whatever they saw before; stored weights stay. Nothing
  /// changes for cells without retention.
  void drift(const Context &context, const Age &age);
  /// Makes drift the cells' own: stored weights become those after drift, without the read noise of
  /// the age, which is 0 again. Pulses, resets and relaxation do so first; a digital write of all
  /// cells ends the age.
  void settle(const Context &context);
  /// Writes weights digitally; they are confined to each cell's bounds. `event` keys the write
  /// noise.
  void setWeights(const Context &context, MatrixView<const float> weights, uint64_t event);

  /// Applies pulses to every cell. `words` come from a BitLineMaker for d [m, rows], x [m, cols].
  void applyPulses(const Context &context, const PulseWords &words);
  /// applyPulses(), and the weights that reads see on the way: visit v of `taps` reads its line
  /// after the sample that `taps` gives, into seen[v], [visits.count, others]; a reset of the line
  /// may follow. `taps.values` and `taps.finals` are scratch memory of this call. Not for an array
  /// that merges noise.
  void applyPulses(const Context &context, const PulseWords &words, LineTaps taps, float *seen);
  /// Reserves storage for taps of up to `visits` visits, by columns or rows.
  void reserveTaps(const Context &context, int64_t visits, bool columns);
  /// Pulses, or changes digitally, the cells of visited lines.
  void applyToLines(const Context &context, const LinePulses &pulses);
  /// Carries out a CellProgram, whose frame and write noise this call sets. Of an array that has
  /// write noise, only cells that get pulses get new noise.
  void program(const Context &context, CellProgram program);
  /// Reads the weights of visited lines, seen[v, k], [visits.count, others].
  void readLines(const Context &context, const LineVisits &visits, bool columns, float *seen) const;
  /// Resets the cells of visited lines, each with the given probability; visit v is event number
  /// event + v.
  void resetLines(const Context &context, const LineVisits &visits, bool columns, float probability,
                  uint64_t event);
  /// Applies pulses to each of `count` different arrays, with the result of applyPulses() for one
  /// after another. A GPU updates neighbours in the list that share a model in one launch.
  static void applyPulsesToEach(const Context &context, const ArrayPulses *list, int count);
  /// Reserves storage for applyOuterProduct() of up to `samples` samples.
  void reserveOuterProduct(const Context &context, int64_t samples);
  /// W <- W - lr d^T x in floating point, sample by sample in order; then the cells' bounds.
  void applyOuterProduct(const Context &context, MatrixView<const float> x,
                         MatrixView<const float> d, float lr, Bounds bounds, uint64_t event);
  /// Applies bounds that an outer product has deferred (Bounds::Later); relax() does so too.
  void meetBounds(const Context &context);
  /// Adds `delta` [rows, cols] digitally, then applies the bounds.
  void addWeights(const Context &context, MatrixView<const float> delta, uint64_t event);

  /// End of mini-batch number `event`: diffusion, decay, bounds, write noise.
  void relax(const Context &context, uint64_t event);
  /// Resets the columns [firstCol, firstCol + count), taken modulo the width, each cell with the
  /// given probability.
  void resetColumns(const Context &context, int64_t firstCol, int64_t count, float probability,
                    uint64_t event);

  /// Resets the cells for which `chosen` [rows, cols], in memory of the backend, is not 0.
  void resetCells(const Context &context, const float *chosen, uint64_t event);

  /// Each cell's w_max, w_min, and mean step up and down at its current weight (at an age, after
  /// drift), for the weights that a read sees: four planes of [rows, cols].
  Buffer<float> describeCells(const Context &context) const;
  /// The symmetric point of each cell as a weight that a read sees: 0 for exact references.
  Buffer<float> symmetricPoints(const Context &context) const {
    return symmetricPoints(context, 0, key_);
  }
  /// symmetricPoints(), with `pairs` > 0 as found by so many pulses up and down, with cycle noise
  /// drawn by `key`, which must serve no other purpose.
  Buffer<float> symmetricPoints(const Context &context, int64_t pairs, RandomKey key) const;
  /// Number of cells that have no symmetric point within their bounds: their mean steps up and down
  /// differ by more than a tenth where these come closest.
  int64_t cellsWithoutSymmetricPoint(const Context &context) const;
  /// A number that the magnitude of no weight that a read sees exceeds, as long as cells keep their
  /// bounds; waits for a GPU.
  double weightBound(const Context &context) const;
  /// Number of cells whose weight sits at a bound.
  int64_t saturatedCells(const Context &context) const;
  /// Coincidences since construction (the pulse ledger).
  uint64_t pulseCount(const Context &context) const;
  /// Address of the number that pulseCount() reads, in memory of the array's backend.
  const uint64_t *pulseCounter() const { return counts_.data(); }
  /// Time slots of pulse trains since construction: the sum of their lengths over samples. Writes
  /// that count pulses without trains have none.
  uint64_t slotCount(const Context &context) const;
  /// Address of the number that slotCount() reads, to which makers of pulse trains add.
  uint64_t *slotCounter() { return counts_.data() + 1; }

  /// Whether the parameters of the cells are stored, not computed.
  bool storesCells() const { return cells_.areStored(); }
  /// Lets the parameters of cells be computed from now on; see CellPlanes::computeFromNowOn().
  void computeCells(const Context &context) { cells_.computeFromNowOn(context); }
  /// Reserves the memory of computed cells in the context's operation, which then cannot run out of
  /// memory for them.
  void reserveCells(const Context &context) const { cells_.reserve(context); }
  /// reserveCells() if relax() will touch cells.
  void reserveRelax(const Context &context) const;

  /// Bytes of device state per array (weights, stored cells, optional planes).
  size_t memoryBytes() const;

  /// Whether a tensor or value of a state describes cells: what was sampled when the array was
  /// made.
  static bool isOfCells(const std::string &name);
  /// Writes / reads the tensors `<prefix>weights`, `<prefix>cells/<member>`, ... of this array.
  void saveTo(const Context &context, State &state, const std::string &prefix) const;
  void loadFrom(const Context &context, const State &state, const std::string &prefix);

 private:
  SampledCells sampledCells(const CellLoan &loan) const;
  CellArray array(const CellLoan &loan);
  bool joinsUpdates(const Context &context) const;
  CellFrame frame() const { return {reference_.data(), signs_.data(), cols_}; }
  Buffer<float> describeStored(const Context &context, const float *weights) const;
  void balance(const Context &context, int64_t pairs, RandomKey key, float *points) const;
  void look(const Context &context, float noise, uint64_t event);
  float writeNoise() const;
  void pulse(const Context &context, const PulseWords &words);
  LineCells cellsOfLines(bool columns) const { return {columns, rows_, cols_}; }
  void tap(const Context &context, LineTaps taps);
  void write(const Context &context, MatrixView<const float> from);
  void reset(const Context &context, ResetEvent event);
  void afterWrite(const Context &context, uint64_t event);
  void confine(const Context &context, float *stored) const;
  void driftStored(const Context &context, float frozen, float *values) const;
  const float *storedNow(const Context &context, Buffer<float> &scratch) const;
  void saveAge(State &state, const std::string &prefix) const;
  Age readAge(const State &state, const std::string &prefix) const;

  DeviceParams params_;
  int64_t rows_;
  int64_t cols_;
  RandomKey key_;
  Buffer<float> weights_;    // stored weights, which pulses act on
  Buffer<float> visible_;    // weights that a read sees, if not the stored ones; else empty
  Buffer<float> reference_;  // empty without references
  Buffer<float> signs_;      // of columns; empty without signs
  CellPlanes cells_;
  Buffer<uint64_t> counts_;         // pulses, slots
  ScratchBuffer<float> scaled_;     // of applyOuterProduct
  std::unique_ptr<Ageing> ageing_;  // only with retention
  uint64_t changes_ = 0;
  bool boundsDue_ = false;     // see Bounds::Later
  uint64_t boundsEvent_ = 0;   // keys the write noise of that time
  ScratchBuffer<float> taps_;  // of reads between samples, and of resets of lines
  Buffer<uint32_t> deferred_;  // scratch of noise_merge = "batch" on a GPU: cells near a bound
};

/// The pulses of a mini-batch for one array of a list.
struct ArrayPulses {
  PulsedDevice *array;
  const PulseWords *words;  // as for PulsedDevice::applyPulses()
};

}  // namespace pulsora
