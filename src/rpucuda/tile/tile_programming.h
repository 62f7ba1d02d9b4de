#pragma once

#include <vector>

#include "tile/tile.h"

namespace pulsora {

/// The programmed array of a tile, where it has one: its weights are programmed once, and drift.
/// What reads see is a function of the weights, the tile's seed and number, and the point; the
/// random numbers of reads are counted from the last program() or drift(). Valid as long as the
/// tile.
class TileProgramming final {
 public:
  bool isProgrammed() const { return array_.isProgrammed(); }
  /// Whether weights changed since they were programmed, so that reads are a StateError.
  bool isStale() const { return array_.isStale(); }
  /// StateError, as of reads, if weights changed since they were programmed.
  void requireCurrent() const { array_.requireCurrent(); }
  const ProgrammedPoint &point() const { return array_.point(); }

  /// Programs the weights, as programming `number` of a chip; reads see the array `time` seconds
  /// after programming, with the bits of drift() to that time. Before anything changes, ConfigError
  /// for a time without numbers, and InputError if a weight is not finite.
  void program(uint64_t number = 0, uint64_t chip = 0, double time = 0.0);
  /// program() of several arrays, whose launches on a GPU are merged.
  static void programAll(const std::vector<TileProgramming> &arrays, uint64_t number = 0,
                         uint64_t chip = 0, double time = 0.0);
  /// program() with programmed conductances in uS that were measured, one row of `values` [dSize
  /// xSize, devicesOfCell()] for each cell. They drift as those of programming `number`.
  /// InputError, before anything changes, if one is negative or not finite.
  void programMeasured(MatrixView<const float> values, uint64_t number = 0);
  bool isMeasured() const { return array_.isMeasured(); }
  /// Programs the weights as at several points of one chip: forward reads of R m rows then see
  /// point r in rows r m to (r + 1) m, as if drift() had led there before these m rows were read.
  /// All else sees the last point, until program(), drift() or unprogram() is called. Conductances
  /// that were measured stay, if all points are of their programming.
  void programMany(const std::vector<ProgrammedPoint> &points);
  /// The errors of drift(); nothing changes.
  void requireDrift(double time) const { array_.requireDrift(time); }
  /// Lets reads see the array `time` seconds after programming; another `redraw` is another reading
  /// at that time. Any order of times is possible. ConfigError for a time without numbers,
  /// StateError if nothing is programmed or the weights have changed.
  void drift(double time, uint64_t redraw = 0);
  /// drift() of several arrays, whose launches on a GPU are merged.
  static void driftAll(const std::vector<TileProgramming> &arrays, double time,
                       uint64_t redraw = 0);
  /// Returns to reads of the weights.
  void unprogram();

  /// Takes weights [dSize, xSize] that a layer holds, for its next reads. It is no event, and on a
  /// GPU nothing waits. A programming becomes stale. With `isSame`, the weights have not changed
  /// since they were taken last, so that no new step of training begins. InputError, on a CPU, if
  /// a weight is not finite.
  void take(MatrixView<const float> weights, bool isSame = false);
  /// Lets the next backward reads see the weights as modified in the forward read whose mini-batch
  /// began at sample `number`.
  void see(uint64_t number) { array_.see(number); }

  /// Writes the weights [dSize, xSize] as they were written, programmed or not.
  void getWritten(MatrixView<float> out) const;
  int64_t devicesOfCell() const { return array_.devicesOfCell(); }
  /// Writes the conductances in uS of all devices of a cell as one row of `out` [dSize xSize,
  /// devicesOfCell()], cell after cell. StateError as in drift().
  void getConductances(Conductances which, MatrixView<float> out);
  /// Writes to `out` the inputs [m, xSize] that the array sees of `x` in a forward read: scaled and
  /// converted, without the noise of the DAC.
  void convertInputs(MatrixView<const float> x, MatrixView<float> out);
  /// The scale of each output, the weight that uses the whole range of a cell.
  std::vector<float> scales() const;
  /// Factor of drift compensation on each output.
  std::vector<float> compensation() const;
  /// Gains of the ADCs of forward reads [arrays with ADCs of their own, dSize], which results are
  /// divided by; see Programmable::setAdcGains() for errors.
  void setAdcGains(const std::vector<float> &gains);
  std::vector<float> adcGains() const;

 private:
  friend class Tile;
  TileProgramming(Tile::Impl &tile, Programmable &array) : tile_(tile), array_(array) {}

  template <class Call>
  static void byStream(const std::vector<TileProgramming> &arrays, const Call &call);
  template <class Call>
  static void together(const std::vector<TileProgramming> &arrays, const Call &call);
  static void requireFiniteAll(const std::vector<TileProgramming> &arrays, bool checksWeights);

  Tile::Impl &tile_;
  Programmable &array_;
};

}  // namespace pulsora
