#include "tile/tile_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "core/backend.h"
#include "core/check.h"
#include "core/cuda_api.h"
#include "linalg/math_util.h"
#include "periphery/additive_reads.h"
#include "tile/tile_adapter.h"
#include "tile/tile_checks.h"
#include "tile/tile_impl.h"
#include "tile/tile_programming.h"

namespace pulsora {

TileGrid::TileGrid(const std::vector<PlacedTile> &tiles, int64_t outputs, int64_t inputs) {
  PULSORA_CHECK(InputError, !tiles.empty(), "there are no tiles; a grid needs at least one");
  std::vector<Lines> rows, cols;
  for (const PlacedTile &placed : tiles) {
    rows.push_back({placed.firstOutput, placed.tile->dSize()});
    cols.push_back({placed.firstInput, placed.tile->xSize()});
  }
  all_.resize(tiles.size());
  std::iota(all_.begin(), all_.end(), size_t{0});
  outputs_ = sideOf("outputs", outputs, std::move(rows));
  inputs_ = sideOf("inputs", inputs, std::move(cols));
  const Context &first = tiles.front().tile->context();
  std::set<std::pair<size_t, size_t>> taken;
  for (const PlacedTile &placed : tiles) {
    const Context &other = placed.tile->context();
    PULSORA_CHECK(InputError, other.backend == first.backend && other.device == first.device,
                  "the tiles of a grid are on different devices; move them to one");
    outputs_.ofPlace.push_back(blockAt(outputs_, placed.firstOutput));
    inputs_.ofPlace.push_back(blockAt(inputs_, placed.firstInput));
    PULSORA_CHECK(InputError,
                  taken.insert({outputs_.ofPlace.back(), inputs_.ofPlace.back()}).second,
                  "two tiles begin at output ", placed.firstOutput, " and input ",
                  placed.firstInput, "; each place of a grid holds one tile");
    tiles_.push_back(placed.tile);
  }
  if (first.onCpu()) return;
  placeReads(outputs_);
  placeReads(inputs_);
}

TileGrid::Side TileGrid::sideOf(const char *name, int64_t size, std::vector<Lines> ofTiles) {
  std::sort(ofTiles.begin(), ofTiles.end(), [](const Lines &a, const Lines &b) {
    return a.first != b.first ? a.first < b.first : a.count < b.count;
  });
  Side side;
  side.name = name;
  side.size = size;
  int64_t end = 0;
  for (const Lines &lines : ofTiles) {
    const bool isKnown = !side.blocks.empty() && side.blocks.back().first == lines.first &&
                         side.blocks.back().count == lines.count;
    if (isKnown) continue;
    PULSORA_CHECK(InputError, lines.first == end, "a tile holds the ", name, " from ", lines.first,
                  " on, but the tiles before end at ", end, "; the ", name,
                  " of two tiles are the same or apart, and none is left out");
    side.blocks.push_back(lines);
    end += lines.count;
  }
  PULSORA_CHECK(InputError, end == size, "the tiles hold ", end, " ", name, " and the matrix has ",
                size, "; give as many as the tiles hold together");
  return side;
}

size_t TileGrid::blockAt(const Side &side, int64_t first) {
  const auto found = std::find_if(side.blocks.begin(), side.blocks.end(),
                                  [&](const Lines &lines) { return lines.first == first; });
  return static_cast<size_t>(found - side.blocks.begin());
}

// Sets the places of the reads of all tiles in a GPU's memory before they are summed.
void TileGrid::placeReads(Side &side) {
  std::vector<GridColumn> columns;
  std::vector<int64_t> places;
  side.readOfPlace.resize(side.ofPlace.size());
  for (size_t block = 0; block < side.blocks.size(); ++block) {
    const auto [first, count] = side.blocks[block];
    const auto begin = static_cast<int64_t>(places.size());
    for (size_t i = 0; i < side.ofPlace.size(); ++i) {
      if (side.ofPlace[i] != block) continue;
      places.push_back(side.readColumns);
      side.readOfPlace[i] = side.readColumns;
      side.readColumns += count;
    }
    const auto end = static_cast<int64_t>(places.size());
    columns.resize(columns.size() + static_cast<size_t>(count), {first, count, begin, end});
  }
  const auto onGpu = [&](const auto &values, auto &buffer) {
    buffer.reserve(context(), static_cast<int64_t>(values.size()));
    detail::copyFromHost(context(), buffer.data(), values.data(), buffer.bytes());
  };
  onGpu(columns, side.columns);
  onGpu(places, side.readPlaces);
}

// The columns of a batch that belong to each block; a GPU's kernels need rows of adjacent elements.
std::vector<MatrixView<const float>> TileGrid::blocksOf(const Context &own,
                                                        MatrixView<const float> batch, Side &side) {
  const bool inPlace = own.onCpu() || batch.isRowMajor();
  if (!inPlace) {
    side.packed.reserve(own, batch.size());
    forEach(own, batch.size(), BlockPacker{batch, side.columns.data(), side.packed.data()});
  }
  std::vector<MatrixView<const float>> blocks;
  blocks.reserve(side.blocks.size());
  for (const auto &[first, count] : side.blocks)
    blocks.push_back(inPlace ? batch.block(0, first, batch.rows, count)
                             : rowMajor<const float>(side.packed.data() + batch.rows * first,
                                                     batch.rows, count));
  return blocks;
}

// Calls call(i) for each of these tiles in order; on a GPU, their launches are batched.
template <class Call>
void TileGrid::forEachOf(const Numbers &tiles, const Call &call) {
  if (context().onCpu() || tiles.size() <= 1) {
    for (const size_t i : tiles) call(i);
    return;
  }
  const CudaScope scope(context().device);
  batched_.run(tiles.size(), [&](size_t i) { call(tiles[i]); });
}

template <class Read>
void TileGrid::readAll(MatrixView<const float> in, const char *name, Side &from,
                       MatrixView<float> out, Side &to, const BatchPart &part, const Read &read) {
  requireShape(in, anyBatch(), {from.name, from.size}, name, "a read of a grid");
  requireShape(out, batchOf(in), {to.name, to.size}, "the result", "a read of a grid");
  if (context().onCpu() && !part.takesInfinite) requireFinite(context(), in, name);
  Context own = context();
  const ScratchOperation operation(own);
  const std::vector<MatrixView<const float>> inputs = blocksOf(own, in, from);
  // Batched reads are all stored until they are summed; too large ones run tile by tile.
  const int64_t mostKept = std::min(int64_t{1} << 25, scratchLimit() / 8);
  if (own.onCpu() || out.rows * to.readColumns > mostKept) {
    addReads(inputs, from, out, to, read);
    return;
  }
  reads_.reserve(own, out.rows * to.readColumns);
  forEachOf(all_, [&](size_t i) {
    float *result = reads_.data() + out.rows * to.readOfPlace[i];
    read(*tiles_[i], inputs[from.ofPlace[i]],
         rowMajor(result, out.rows, to.blocks[to.ofPlace[i]].count), false);
  });
  forEach(own, out.size(),
          BlockSummer{reads_.data(), to.columns.data(), to.readPlaces.data(), out});
}

// Reads one tile after another; the first tile of a block writes the result, and others add to it.
template <class Read>
void TileGrid::addReads(const std::vector<MatrixView<const float>> &inputs, const Side &from,
                        MatrixView<float> out, const Side &to, const Read &read) {
  std::vector<bool> begun(to.blocks.size());
  for (size_t i = 0; i < tiles_.size(); ++i) {
    const size_t block = to.ofPlace[i];
    const auto [first, count] = to.blocks[block];
    read(*tiles_[i], inputs[from.ofPlace[i]], out.block(0, first, out.rows, count), begun[block]);
    begun[block] = true;
  }
}

void TileGrid::forward(MatrixView<const float> x, MatrixView<float> y, const BatchPart &part) {
  readAll(x, "x", inputs_, y, outputs_, part,
          [&](Tile &tile, MatrixView<const float> in, MatrixView<float> out, bool adds) {
            tile.forwardChecked(in, out, part, adds);
          });
}

void TileGrid::backward(MatrixView<const float> d, MatrixView<float> dx, const BatchPart &part) {
  readAll(d, "d", outputs_, dx, inputs_, part,
          [&](Tile &tile, MatrixView<const float> in, MatrixView<float> out, bool adds) {
            tile.backwardChecked(in, out, part, adds);
          });
}

void TileGrid::update(MatrixView<const float> x, MatrixView<const float> d, float lr, BatchEnd end,
                      const Pause &pause) {
  updateSome(all_, x, d, lr, end, pause);
}

void TileGrid::updateSome(const Numbers &tiles, MatrixView<const float> x,
                          MatrixView<const float> d, float lr, BatchEnd end, const Pause &pause) {
  requireKnown(tiles);
  const Samples samples{x, d, {}, {}};
  requireSamples(samples, lr, nullptr);
  updateChecked(tiles, samples, lr, pause);
  if (end == BatchEnd::Now) endBatchSome(tiles, lr);
}

// `patches` is for samples that are patches of images.
void TileGrid::requireSamples(const Samples &samples, float lr, Buffer<float> *patches) const {
  const auto &[x, d, gate, images] = samples;
  requireShape(x, anyBatch(), {inputs_.name, inputs_.size}, "x", "update");
  requireShape(d, batchOf(x), {outputs_.name, outputs_.size}, "d", "update");
  requireLearningRate(lr);
  if (!context().onCpu()) return;
  if (!images.pixels) {
    requireStep(context(), x, d, lr);
  } else if (!stepFits(images, d, lr)) {
    requireStep(context(), inputsOf(samples, *patches), d, lr);
  }
}

// Whether, on the CPU, all pixels are so small that requireStep() would take the patches.
bool TileGrid::stepFits(const PatchedImages &images, MatrixView<const float> d, float lr) const {
  const PatchGrid &grid = images.grid;
  const int64_t lines = images.count * grid.channels * grid.height;
  const float most = std::max(absMax(context(), rowMajor(images.pixels, lines, grid.width)), 1.0f);
  const MatrixView<const float> same{&most, d.rows, 1, 0, 1};
  return sumOfAbsMaxProducts(context(), same, d) * std::fabs(static_cast<double>(lr)) <=
         static_cast<double>(std::numeric_limits<float>::max());
}

// The inputs x of samples, which are in `patches` until it is used again.
MatrixView<const float> TileGrid::inputsOf(const Samples &samples, Buffer<float> &patches) const {
  const auto &[x, d, gate, images] = samples;
  if (!images.pixels) return x;
  patches.reserve(context(), x.size());
  takePatches(context(), images, patches.data());
  return rowMajor<const float>(patches.data(), x.rows, x.cols);
}

void TileGrid::updateChecked(const Numbers &tiles, const Samples &samples, float lr,
                             const Pause &pause) {
  if (tiles.empty()) return;
  Context own = context();
  const ScratchOperation operation(own);
  const std::vector<MatrixView<const float>> inputs = blocksOf(own, samples.x, inputs_);
  const std::vector<MatrixView<const float>> outputs = blocksOf(own, samples.d, outputs_);
  forEachOf(tiles, [&](size_t i) {
    const MatrixView<const float> x = inputs[inputs_.ofPlace[i]];
    const MatrixView<const float> d = outputs[outputs_.ofPlace[i]];
    if (samples.gate.data) {
      tiles_[i]->adapter().update(x, d, samples.gate, lr, BatchEnd::Later, pause);
    } else {
      tiles_[i]->updateChecked(x, d, lr, pause);
    }
  });
}

void TileGrid::prepareStep(const Numbers &tiles, const std::vector<Samples> &samples, float lr,
                           Buffer<float> &patches) {
  requireKnown(tiles);
  int64_t rows = 0;
  int64_t longest = 0;
  for (const Samples &each : samples) {
    const auto &[x, d, gate, images] = each;
    requireSamples(each, lr, &patches);
    if (images.pixels) patches.reserve(context(), x.size());
    rows += x.rows;
    longest = std::max(longest, x.rows);
    if (!gate.data) continue;
    for (const size_t i : tiles)
      requireShape(gate, batchOf(x), {"rank", tiles_[i]->adapter().rank()}, "gate", "update");
    if (context().onCpu()) requireFinite(context(), gate, "gate");
  }
  forEachOf(tiles, [&](size_t i) { tiles_[i]->impl_->prepareUpdate(rows, longest, lr); });
}

void TileGrid::step(const Numbers &tiles, const std::vector<Samples> &samples, float lr,
                    Buffer<float> &patches) {
  // Without a pause, a long update would need memory for all samples at once.
  const Pause none = [] {};
  for (const Samples &each : samples)
    updateChecked(tiles, {inputsOf(each, patches), each.d, each.gate, {}}, lr, none);
  endBatchSome(tiles, lr);
}

void TileGrid::endBatch(float lr) { endBatchSome(all_, lr); }

void TileGrid::endBatchSome(const Numbers &tiles, float lr) {
  requireKnown(tiles);
  forEachOf(tiles, [&](size_t i) { tiles_[i]->endBatch(lr); });
}

// The weights of a tile among those of the matrix.
MatrixView<const float> TileGrid::partOf(size_t tile, MatrixView<const float> weights) const {
  const Lines &rows = outputs_.blocks[outputs_.ofPlace[tile]];
  const Lines &cols = inputs_.blocks[inputs_.ofPlace[tile]];
  return weights.block(rows.first, cols.first, rows.count, cols.count);
}

// InputError unless the matrix has the grid's shape and, on a CPU, its parts for tiles are finite.
void TileGrid::requireMatrix(MatrixView<const float> a, const char *name, const char *what) const {
  requireShape(a, {outputs_.name, outputs_.size}, {inputs_.name, inputs_.size}, name, what);
  if (!context().onCpu()) return;
  for (const size_t i : all_) requireFinite(context(), partOf(i, a), name);
}

void TileGrid::follow(MatrixView<const float> master) {
  requireMatrix(master, "master", "follow");
  forEachOf(all_, [&](size_t i) { tiles_[i]->impl_->prepareFollow(); });
  forEachOf(all_, [&](size_t i) {
    if (!context().onCpu()) requireFinite(tiles_[i]->context(), partOf(i, master), "master");
    tiles_[i]->followChecked(partOf(i, master));
  });
}

void TileGrid::take(MatrixView<const float> weights, bool isSame) {
  requireMatrix(weights, "weights", "take");
  forEachOf(all_, [&](size_t i) { tiles_[i]->programming().take(partOf(i, weights), isSame); });
}

std::vector<uint64_t> TileGrid::nextSamples() const {
  std::vector<uint64_t> numbers;
  numbers.reserve(tiles_.size());
  for (const Tile *tile : tiles_) numbers.push_back(tile->counters().forwardSamples);
  return numbers;
}

void TileGrid::see(const std::vector<uint64_t> &numbers) {
  PULSORA_CHECK(InputError, numbers.size() == tiles_.size(), "there are ", numbers.size(),
                " numbers for ", tiles_.size(), " tiles; give one for each");
  for (size_t i = 0; i < tiles_.size(); ++i) tiles_[i]->programming().see(numbers[i]);
}

int64_t TileGrid::changesSize(const Numbers &tiles, ChangedParts parts) const {
  requireKnown(tiles);
  int64_t size = 0;
  for (const size_t i : tiles) size += tiles_[i]->changesSize(parts);
  return size;
}

void TileGrid::packChanges(const Numbers &tiles, VectorView<float> to, ChangedParts parts) {
  requirePacked(tiles, to.size, parts);
  float *next = to.data;
  forEachOf(tiles, [&](size_t i) { next = tiles_[i]->packChanges(next, parts); });
}

void TileGrid::unpackChanges(const Numbers &tiles, VectorView<const float> from,
                             ChangedParts parts) {
  requirePacked(tiles, from.size, parts);
  const float *next = from.data;
  forEachOf(tiles, [&](size_t i) { next = tiles_[i]->unpackChanges(next, parts); });
}

std::vector<uint64_t> TileGrid::changedNumbers(const Numbers &tiles) const {
  requireKnown(tiles);
  std::vector<uint64_t> numbers;
  for (const size_t i : tiles) {
    const std::vector<uint64_t> ofTile = tiles_[i]->changedNumbers();
    numbers.insert(numbers.end(), ofTile.begin(), ofTile.end());
  }
  return numbers;
}

void TileGrid::restoreNumbers(const Numbers &tiles, const std::vector<uint64_t> &numbers) {
  requireKnown(tiles);
  size_t taken = 0;
  for (const size_t i : tiles)
    taken += tiles_[i]->restoreNumbers(numbers.data() + taken, numbers.size() - taken);
  PULSORA_CHECK(InputError, taken == numbers.size(), "there are ", numbers.size(),
                " numbers of changes, and ", tiles.size(), " tiles took ", taken,
                "; give those of changedNumbers() of the same tiles");
}

void TileGrid::computeCells(const Numbers &tiles) {
  requireKnown(tiles);
  for (const size_t i : tiles) tiles_[i]->computeCells();
}

void TileGrid::releaseWeights(const Numbers &tiles) {
  requireKnown(tiles);
  for (const size_t i : tiles) tiles_[i]->releaseWeights();
}

void TileGrid::requireKnown(const Numbers &tiles) const {
  std::vector<bool> named(tiles_.size());
  for (const size_t i : tiles) {
    PULSORA_CHECK(InputError, i < tiles_.size(), "tiles: there is no tile ", i, " in a grid of ",
                  tiles_.size(), "; number them from 0");
    PULSORA_CHECK(InputError, !named[i], "tiles: tile ", i, " is named twice; name it once");
    named[i] = true;
  }
}

void TileGrid::requirePacked(const Numbers &tiles, int64_t size, ChangedParts parts) const {
  const int64_t wanted = changesSize(tiles, parts);
  PULSORA_CHECK(InputError, size == wanted, "the changes have ", size, " floats, and those of ",
                tiles.size(), " tiles take ", wanted, " (changesSize)");
}

}  // namespace pulsora
