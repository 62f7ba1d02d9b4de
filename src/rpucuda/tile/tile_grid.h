#pragma once

#include <vector>

#include "core/batched_launches.h"
#include "core/buffer.h"
#include "core/scratch.h"
#include "linalg/im2col.h"
#include "tile/grid_functors.h"
#include "tile/tile.h"

namespace pulsora {

/// A tile as a block of a larger matrix [outputs, inputs], by the row and column of its first cell.
struct PlacedTile {
  Tile *tile;
  int64_t firstOutput;
  int64_t firstInput;
};

/// A matrix W [outputs, inputs] that is spread over tiles, read and updated as one. Sums over tiles
/// are digital, in the order of the list, so that results have the bits of calling the tiles one by
/// one. Places without a tile are zeros of W (for convolutions with groups). On a GPU, equal
/// launches of the tiles are batched (BatchedLaunches). Tiles are borrowed; all are on one device
/// and in one stream.
class TileGrid final {
 public:
  /// InputError unless the rows of any two tiles are equal or disjoint, and the rows of all tiles
  /// are all outputs; likewise columns and inputs; no place is taken twice, and all tiles are on
  /// one device.
  TileGrid(const std::vector<PlacedTile> &tiles, int64_t outputs, int64_t inputs);

  int64_t outputs() const { return outputs_.size; }
  int64_t inputs() const { return inputs_.size; }

  /// y [m, outputs] = W x for x [m, inputs]. InputError here and in backward(), before a tile is
  /// read, for wrong shapes and, on the CPU, non-finite values. Other errors here and below come
  /// from a tile; the tiles before it have then been read or updated.
  void forward(MatrixView<const float> x, MatrixView<float> y, const BatchPart &part = {});
  /// dx [m, inputs] = W^T d for d [m, outputs].
  void backward(MatrixView<const float> d, MatrixView<float> dx, const BatchPart &part = {});
  /// W <- W - lr d^T x by pulses, and the end of the mini-batch unless `end` says Later.
  void update(MatrixView<const float> x, MatrixView<const float> d, float lr,
              BatchEnd end = BatchEnd::Now, const Pause &pause = {});
  /// Ends a mini-batch whose updates said BatchEnd::Later.
  void endBatch(float lr);

  /// Lets cells follow the digital weight [outputs, inputs] by pulses, and ends a mini-batch
  /// (Tile::follow()). Places without a tile are not looked at.
  void follow(MatrixView<const float> master);
  /// Writes the weights [outputs, inputs] of programmable tiles (TileProgramming::take()).
  void take(MatrixView<const float> weights, bool isSame = false);
  /// The number of the next forward sample of each tile.
  std::vector<uint64_t> nextSamples() const;
  /// TileProgramming::see() of each tile, with the number for each.
  void see(const std::vector<uint64_t> &numbers);

  /// Positions of tiles in the list given to the grid; each once.
  using Numbers = std::vector<size_t>;
  /// update() and endBatch() of some tiles. InputError for an unknown tile, here and below.
  void updateSome(const Numbers &tiles, MatrixView<const float> x, MatrixView<const float> d,
                  float lr, BatchEnd end = BatchEnd::Now, const Pause &pause = {});
  void endBatchSome(const Numbers &tiles, float lr);

  /// The samples of one call of an update; with a gate [m, K], their forward was gated. With
  /// `images`, their patches are the rows of x, which then has a shape alone.
  struct Samples {
    MatrixView<const float> x, d, gate;
    PatchedImages images;
  };
  /// A whole mini-batch of some tiles, in two steps. prepareStep() refuses, before anything
  /// changes, what updates by these samples and the end of the mini-batch would refuse, and
  /// reserves their memory. step() makes them; after prepareStep(), only a fault of the machine can
  /// end it early. `patches` takes the patches of images, call after call; grids may share it.
  void prepareStep(const Numbers &tiles, const std::vector<Samples> &samples, float lr,
                   Buffer<float> &patches);
  void step(const Numbers &tiles, const std::vector<Samples> &samples, float lr,
            Buffer<float> &patches);
  /// The numbers of all tiles.
  const Numbers &all() const { return all_; }
  /// Tile::changesSize(), packChanges() and unpackChanges() of some tiles, one after another.
  /// InputError for memory of another size.
  int64_t changesSize(const Numbers &tiles, ChangedParts parts = ChangedParts::All) const;
  void packChanges(const Numbers &tiles, VectorView<float> to,
                   ChangedParts parts = ChangedParts::All);
  void unpackChanges(const Numbers &tiles, VectorView<const float> from,
                     ChangedParts parts = ChangedParts::All);
  /// Tile::changedNumbers() and restoreNumbers() of some tiles, one after another. InputError for
  /// another number of them.
  std::vector<uint64_t> changedNumbers(const Numbers &tiles) const;
  void restoreNumbers(const Numbers &tiles, const std::vector<uint64_t> &numbers);
  /// Tile::computeCells() and releaseWeights() of some tiles.
  void computeCells(const Numbers &tiles);
  void releaseWeights(const Numbers &tiles);

 private:
  /// A range of neighbouring lines.
  struct Lines {
    int64_t first;
    int64_t count;
  };
  /// The division of the outputs or the inputs among the tiles.
  struct Side {
    const char *name;
    int64_t size;
    std::vector<Lines> blocks;    // in order, without gaps
    std::vector<size_t> ofPlace;  // the block of each tile
    // On a GPU:
    std::vector<int64_t> readOfPlace;  // columns of all reads before each tile's read
    int64_t readColumns = 0;           // of all tiles
    Buffer<GridColumn> columns;
    Buffer<int64_t> readPlaces;   // readOfPlace, block by block
    ScratchBuffer<float> packed;  // the blocks of a batch
  };

  static Side sideOf(const char *name, int64_t size, std::vector<Lines> ofTiles);
  static size_t blockAt(const Side &side, int64_t first);
  void placeReads(Side &side);
  std::vector<MatrixView<const float>> blocksOf(const Context &own, MatrixView<const float> batch,
                                                Side &side);
  template <class Call>
  void forEachOf(const Numbers &tiles, const Call &call);
  void requireKnown(const Numbers &tiles) const;
  MatrixView<const float> partOf(size_t tile, MatrixView<const float> weights) const;
  void requireMatrix(MatrixView<const float> a, const char *name, const char *what) const;
  void requireSamples(const Samples &samples, float lr, Buffer<float> *patches) const;
  void updateChecked(const Numbers &tiles, const Samples &samples, float lr, const Pause &pause);
  bool stepFits(const PatchedImages &images, MatrixView<const float> d, float lr) const;
  MatrixView<const float> inputsOf(const Samples &samples, Buffer<float> &patches) const;
  void requirePacked(const Numbers &tiles, int64_t size, ChangedParts parts) const;
  template <class Read>
  void readAll(MatrixView<const float> in, const char *name, Side &from, MatrixView<float> out,
               Side &to, const BatchPart &part, const Read &read);
  template <class Read>
  void addReads(const std::vector<MatrixView<const float>> &inputs, const Side &from,
                MatrixView<float> out, const Side &to, const Read &read);
  const Context &context() const { return tiles_.front()->context(); }

  Side outputs_;
  Side inputs_;
  std::vector<Tile *> tiles_;
  Numbers all_;
  ScratchBuffer<float> reads_;  // of all tiles, not yet summed
  BatchedLaunches batched_;
};

}  // namespace pulsora
