#include "tile/tile_grid.h"

#include <algorithm>

#include "core/check.h"
#include "core/math_util.h"
#include "periphery/joined_reads.h"
#include "tile/tile_checks.h"

namespace RPU {

TileGrid::TileGrid(const std::vector<PlacedTile> &tiles, int64_t outputs, int64_t inputs) {
  RPU_CHECK(InputError, !tiles.empty(), "there are no tiles; a grid needs at least one");
  std::vector<Lines> rows, cols;
  for (const PlacedTile &placed : tiles) {
    rows.push_back({placed.firstOutput, placed.tile->dSize()});
    cols.push_back({placed.firstInput, placed.tile->xSize()});
  }
  outputs_ = sideOf("outputs", outputs, std::move(rows));
  inputs_ = sideOf("inputs", inputs, std::move(cols));
  const Context &first = tiles.front().tile->context();
  for (const PlacedTile &placed : tiles) {
    const Context &other = placed.tile->context();
    RPU_CHECK(InputError, other.backend == first.backend && other.device == first.device,
              "the tiles of a grid are on different devices; move them to one");
    const Place place{placed.tile, blockAt(outputs_, placed.firstOutput),
                      blockAt(inputs_, placed.firstInput)};
    for (const Place &before : places_) {
      RPU_CHECK(InputError,
                before.outputBlock != place.outputBlock || before.inputBlock != place.inputBlock,
                "two tiles begin at output ", placed.firstOutput, " and input ", placed.firstInput,
                "; each place of a grid holds one tile");
    }
    places_.push_back(place);
  }
}

TileGrid::Side TileGrid::sideOf(const char *name, int64_t size, std::vector<Lines> ofTiles) {
  std::sort(ofTiles.begin(), ofTiles.end(), [](const Lines &a, const Lines &b) {
    return a.first != b.first ? a.first < b.first : a.count < b.count;
  });
  Side side{name, size, {}, {}};
  int64_t end = 0;
  for (const Lines &lines : ofTiles) {
    const bool isKnown = !side.blocks.empty() && side.blocks.back().first == lines.first &&
                         side.blocks.back().count == lines.count;
    if (isKnown) continue;
    RPU_CHECK(InputError, lines.first == end, "a tile holds the ", name, " from ", lines.first,
              " on, but the tiles before end at ", end, "; the ", name,
              " of two tiles are the same or apart, and none is left out");
    side.blocks.push_back(lines);
    end += lines.count;
  }
  RPU_CHECK(InputError, end == size, "the tiles hold ", end, " ", name, " and the matrix has ",
            size, "; give as many as the tiles hold together");
  return side;
}

size_t TileGrid::blockAt(const Side &side, int64_t first) {
  const auto found = std::find_if(side.blocks.begin(), side.blocks.end(),
                                  [&](const Lines &lines) { return lines.first == first; });
  return static_cast<size_t>(found - side.blocks.begin());
}

// The columns of a batch that each block has: in place on the CPU, and on a GPU, whose kernels want rows
// without gaps, in memory of their own, to which they are copied if the batch is `filled`.
template <class T>
std::vector<MatrixView<T>> TileGrid::views(MatrixView<T> batch, Side &side, bool filled) {
  std::vector<MatrixView<T>> result;
  const bool inPlace = context().onCpu() || (side.blocks.size() == 1 && batch.isContiguous());
  if (!inPlace) side.packed.reserve(context(), batch.size());
  for (const Lines &lines : side.blocks) {
    const MatrixView<T> block = batch.block(0, lines.first, batch.rows, lines.count);
    if (inPlace) {
      result.push_back(block);
      continue;
    }
    const MatrixView<float> packed =
        rowMajor(side.packed.data() + batch.rows * lines.first, batch.rows, lines.count);
    if (filled) copy(context(), block, packed);
    result.push_back(packed);
  }
  return result;
}

template <class Read>
void TileGrid::readAll(MatrixView<const float> in, Side &from, size_t Place::*fromBlock,
                       MatrixView<float> out, Side &to, size_t Place::*toBlock, const Read &read) {
  requireShape(in, anyBatch(), {from.name, from.size}, "the batch", "a read of a grid");
  requireShape(out, batchOf(in), {to.name, to.size}, "the result", "a read of a grid");
  int64_t widest = 0;
  for (const Lines &lines : to.blocks) widest = std::max(widest, lines.count);
  if (places_.size() > to.blocks.size()) added_.reserve(context(), in.rows * widest);
  const std::vector<MatrixView<const float>> inputs = views(in, from, true);
  const std::vector<MatrixView<float>> results = views(out, to, false);
  std::vector<bool> begun(to.blocks.size());
  for (const Place &place : places_) {
    const MatrixView<const float> &given = inputs[place.*fromBlock];
    const MatrixView<float> &result = results[place.*toBlock];
    if (begun[place.*toBlock]) {
      read(*place.tile, given, rowMajor(added_.data(), result.rows, result.cols));
      addScaled(context(), {added_.data(), 1.0f, result});
    } else {
      read(*place.tile, given, result);
      begun[place.*toBlock] = true;
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const MatrixView<float> target = out.block(0, to.blocks[i].first, out.rows, to.blocks[i].count);
    if (results[i].data != target.data) copy(context(), results[i], target);
  }
}

void TileGrid::forward(MatrixView<const float> x, MatrixView<float> y, const BatchPart &part) {
  readAll(x, inputs_, &Place::inputBlock, y, outputs_, &Place::outputBlock,
          [&](Tile &tile, MatrixView<const float> in, MatrixView<float> out) {
            tile.forward(in, out, part);
          });
}

void TileGrid::backward(MatrixView<const float> d, MatrixView<float> dx, const BatchPart &part) {
  readAll(d, outputs_, &Place::outputBlock, dx, inputs_, &Place::inputBlock,
          [&](Tile &tile, MatrixView<const float> in, MatrixView<float> out) {
            tile.backward(in, out, part);
          });
}

void TileGrid::update(MatrixView<const float> x, MatrixView<const float> d, float lr,
                      const Pause &pause) {
  requireShape(x, anyBatch(), {inputs_.name, inputs_.size}, "x", "update");
  requireShape(d, batchOf(x), {outputs_.name, outputs_.size}, "d", "update");
  const std::vector<MatrixView<const float>> inputs = views(x, inputs_, true);
  const std::vector<MatrixView<const float>> outputs = views(d, outputs_, true);
  for (const Place &place : places_)
    place.tile->update(inputs[place.inputBlock], outputs[place.outputBlock], lr, pause);
}

void TileGrid::postUpdate(float lr) {
  for (const Place &place : places_) place.tile->postUpdate(lr);
}

}  // namespace RPU
