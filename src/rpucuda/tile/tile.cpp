#include "tile/tile.h"

#include <algorithm>

#include "linalg/math_util.h"
#include "tile/tile_adapter.h"
#include "tile/tile_impl.h"
#include "tile/tile_programming.h"

namespace pulsora {

namespace {

void requireRetention(const Tile &tile) {
  PULSORA_CHECK(ConfigError, tile.retains(), "the arrays of this tile keep their weights; give ",
                "its configuration a retention, for example retention=noise_models.Exponential()");
}

}  // namespace

Tile::Tile(int64_t dSize, int64_t xSize, const TileConfig &config, uint64_t seed, uint32_t tileId,
           const Context &context)
    : Tile(dSize, xSize, config, TileKeys{seed, tileId}, context) {}

Tile::Tile(int64_t dSize, int64_t xSize, const TileConfig &config, const TileKeys &keys,
           const Context &context) {
  PULSORA_CHECK(ConfigError, dSize >= 1, "d_size is ", dSize, "; it must be >= 1");
  PULSORA_CHECK(ConfigError, xSize >= 1, "x_size is ", xSize, "; it must be >= 1");
  PULSORA_CHECK(
      ConfigError, dSize <= INT32_MAX && xSize <= INT32_MAX && dSize <= (int64_t{1} << 32) / xSize,
      "a tile of size [", dSize, ", ", xSize,
      "] was asked for; a tile holds at most 2^32 cells: split the layer over several tiles");
  checkContext(context);
  checkParams(config, "");
  static_cast<void>(readParams<TileConfig>(writeParams(config), ""));  // as when a state is loaded
  impl_ = std::make_unique<Impl>(config, context, dSize, xSize, keys);
}

Tile::Members &Tile::Members::operator=(std::unique_ptr<Impl> made) {
  made_ = std::move(made);
  return *this;
}

Tile::~Tile() = default;
Tile::Tile(Tile &&) noexcept = default;
Tile &Tile::operator=(Tile &&) noexcept = default;

int64_t Tile::dSize() const { return impl_->device->dSize(); }
int64_t Tile::xSize() const { return impl_->device->xSize(); }
const TileConfig &Tile::config() const { return impl_->config; }
const Context &Tile::context() const { return impl_->context; }
uint64_t Tile::seed() const { return impl_->keys.seed; }
uint32_t Tile::tileId() const { return impl_->keys.tileId; }
uint64_t Tile::cellSeed() const { return impl_->keys.cellSeed; }
const Counters &Tile::counters() const { return impl_->counters; }

void Tile::setContext(const Context &context) {
  checkContext(context);
  PULSORA_CHECK(
      ConfigError,
      context.backend == impl_->context.backend && context.device == impl_->context.device,
      "a tile stays on its device; save its state and load it into a tile made on the other "
      "device");
  if (!context.onCpu()) detail::cudaOrder(impl_->context, context);
  impl_->context = context;
  impl_->context.nonfiniteFlag = impl_->nonfiniteFlag.data();
  impl_->context.scratch = nullptr;
  impl_->scratch = ScratchPool::of(context);
}

void Tile::forward(MatrixView<const float> x, MatrixView<float> y, const BatchPart &part) {
  requireForward(x, y);
  forwardChecked(x, y, part, false);
}

void Tile::forwardChecked(MatrixView<const float> x, MatrixView<float> y, const BatchPart &part,
                          bool adds) {
  impl_->readPart(Pass::Forward, x, "x", part,
                  [&](const Context &context, const Counters &counters, const RowRange &rows) {
                    impl_->readInto(context, rows.of(y), adds, [&](MatrixView<float> to) {
                      read(context, rows.of(x), to, counters);
                    });
                  });
}

void Tile::forwardAgain(MatrixView<const float> x, MatrixView<float> y, uint64_t firstSample,
                        int64_t of) {
  const IOParameters &io = impl_->config.forward;
  PULSORA_CHECK(
      ConfigError, io.is_perfect || io.noise_management != NoiseManagement::AverageAbsMax,
      "forward.noise_management is 'average_abs_max', and its scale depends on every earlier "
      "read, so that none can be repeated; choose 'abs_max'");
  requireForward(x, y);
  if (!isEvaluation(firstSample)) Impl::requireRoom(firstSample, x.rows, "samples of forward");
  Counters then = impl_->readCounters();
  then.batch = firstSample;
  impl_->inBlocks(Pass::Forward, x.rows, true, [&](const RowRange &rows) {
    then.forwardSamples = firstSample + static_cast<uint64_t>(rows.first);
    read(impl_->partOf(of, false), rows.of(x), rows.of(y), then);
  });
}

void Tile::requireForward(MatrixView<const float> x, MatrixView<const float> y) const {
  requireShape(x, anyBatch(), {"x_size", xSize()}, "x", "forward");
  requireShape(y, batchOf(x), {"d_size", dSize()}, "y", "forward");
  if (impl_->context.onCpu()) requireFinite(impl_->context, x, "x");
}

void Tile::read(const Context &context, MatrixView<const float> x, MatrixView<float> y,
                const Counters &counters) {
  impl_->flagNonfiniteRead(context, impl_->config.forward, x);
  impl_->device->forward(context, x, y, counters);
  impl_->compensation->apply(context, y);
  requireFiniteResult(context, y, "y");
}

void Tile::backward(MatrixView<const float> d, MatrixView<float> dx, const BatchPart &part) {
  requireShape(d, anyBatch(), {"d_size", dSize()}, "d", "backward");
  requireShape(dx, batchOf(d), {"x_size", xSize()}, "dx", "backward");
  if (impl_->context.onCpu() && !part.takesInfinite) requireFinite(impl_->context, d, "d");
  backwardChecked(d, dx, part, false);
}

void Tile::backwardChecked(MatrixView<const float> d, MatrixView<float> dx, const BatchPart &part,
                           bool adds) {
  const FiniteRows finite(impl_->context, d, part.takesInfinite);
  const auto read = [&](const Context &given, const Counters &counters, const RowRange &rows) {
    Context context = given;
    if (part.takesInfinite) context.nonfiniteFlag = nullptr;
    const MatrixView<const float> in = rows.of(finite.view());
    impl_->readInto(context, rows.of(dx), adds, [&](MatrixView<float> to) {
      impl_->flagNonfiniteRead(context, impl_->config.backward, in);
      impl_->device->backward(context, impl_->compensation->scaled(context, in), to, counters);
      requireFiniteResult(context, to, "dx");
    });
  };
  impl_->readPart(Pass::Backward, finite.view(), "d", part, read);
  finite.spoil(dx);
}

void Tile::update(MatrixView<const float> x, MatrixView<const float> d, float lr, BatchEnd end,
                  const Pause &pause) {
  requireShape(x, anyBatch(), {"x_size", xSize()}, "x", "update");
  requireShape(d, batchOf(x), {"d_size", dSize()}, "d", "update");
  requireLearningRate(lr);
  if (impl_->context.onCpu()) requireStep(impl_->context, x, d, lr);
  updateChecked(x, d, lr, pause);
  if (end == BatchEnd::Now) impl_->endBatch(lr);
}

void Tile::updateChecked(MatrixView<const float> x, MatrixView<const float> d, float lr,
                         const Pause &pause) {
  impl_->requireRoomForUpdate(x.rows);
  const auto check = [&](bool inParts) {
    if (impl_->context.onCpu()) return;
    if (inParts || !impl_->device->updateLooksForFaults(impl_->context, x.rows))
      requireFinite(impl_->context, x, d);
  };
  impl_->updateInParts(x.rows, lr, pause, check, [&](const Context &context, const RowRange &rows) {
    impl_->device->update(context, rows.of(x), rows.of(d), lr, impl_->counters);
  });
}

void Tile::endBatch(float lr) {
  requireLearningRate(lr);
  impl_->endBatch(lr);
}

void Tile::follow(MatrixView<const float> master) {
  requireShape(master, {"d_size", dSize()}, {"x_size", xSize()}, "master", "follow");
  requireFinite(impl_->context, master, "master");
  impl_->prepareFollow();
  followChecked(master);
}

void Tile::followChecked(MatrixView<const float> master) {
  const ScratchOperation operation(impl_->context);
  impl_->device->reserveCells(impl_->context);
  impl_->device->follow(impl_->context, master, impl_->counters);
  ++impl_->counters.miniBatches;
}

Value::Map Tile::calibrate(int64_t pairs) {
  impl_->reportNonfinite();
  Impl::requireRoom(impl_->counters.events, 1, "writes");
  const ScratchOperation operation(impl_->context);
  impl_->device->reserveCells(impl_->context);
  Value::Map error = impl_->device->calibrate(impl_->context, pairs, impl_->counters);
  ++impl_->counters.events;
  return error;
}

void Tile::getWeights(MatrixView<float> out) const {
  requireShape(out, {"d_size", dSize()}, {"x_size", xSize()}, "out", "getWeights");
  impl_->reportNonfinite();
  const ScratchOperation operation(impl_->context);
  impl_->device->getWeights(impl_->context, out);
  impl_->compensation->apply(impl_->context, out.transposed());
}

void Tile::setWeights(MatrixView<const float> weights) {
  requireShape(weights, {"d_size", dSize()}, {"x_size", xSize()}, "weights", "setWeights");
  impl_->requireFiniteNow(weights, "weights");
  Impl::requireRoom(impl_->counters.events, 1, "writes");
  const ScratchOperation operation(impl_->context);
  impl_->device->reserveCells(impl_->context);
  impl_->device->setWeights(impl_->context, weights, impl_->counters);
  impl_->compensation->end(impl_->context);
  ++impl_->counters.events;
}

std::vector<std::string> Tile::arrayNames() const {
  std::vector<std::string> names;
  for (const NamedArray &each : impl_->device->arrays()) names.push_back(each.name);
  return names;
}

const PulsedDevice &Tile::array(const std::string &name) const {
  impl_->requireWeights();
  return impl_->device->array(name).cells();
}

void Tile::getArray(const std::string &name, MatrixView<float> out) const {
  const PulsedDevice &from = array(name);
  requireShape(out, {"rows", from.rows()}, {"columns", from.cols()}, "out", "getArray");
  impl_->reportNonfinite();
  copy(impl_->context, from.weights(), out);
}

void Tile::setArray(const std::string &name, MatrixView<const float> weights) {
  const PulsedDevice &to = array(name);
  requireShape(weights, {"rows", to.rows()}, {"columns", to.cols()}, "weights", "setArray");
  impl_->requireFiniteNow(weights, "weights");
  Impl::requireRoom(impl_->counters.events, 1, "writes");
  const ScratchOperation operation(impl_->context);
  impl_->device->reserveCells(impl_->context);
  impl_->device->writeArray(impl_->context, name, weights, impl_->counters);
  ++impl_->counters.events;
}

void Tile::resetColumns(const std::string &name, int64_t firstCol, int64_t count,
                        float probability) {
  impl_->reportNonfinite();
  Impl::requireRoom(impl_->counters.events, 1, "writes");
  const ScratchOperation operation(impl_->context);
  impl_->device->reserveCells(impl_->context);
  impl_->device->resetColumns(impl_->context, name, firstCol, count, probability, impl_->counters);
  ++impl_->counters.events;
}

bool Tile::hasAdapter() const { return impl_->device->adapter() != nullptr; }

TileAdapter Tile::adapter() {
  GatedAdapter *adapter = impl_->device->adapter();
  PULSORA_CHECK(
      ConfigError, adapter, "kind is '", impl_->config.compound.model().kind,
      "', and the tile has no adapter; use a configuration of kind 'lrtt' with rank >= 1");
  return {*impl_, *adapter};
}

bool Tile::isProgrammable() const { return impl_->device->programmable() != nullptr; }

TileProgramming Tile::programming() {
  Programmable *array = impl_->device->programmable();
  PULSORA_CHECK(ConfigError, array, "kind is '", impl_->config.compound.model().kind,
                "', and the tile is not programmed; use a configuration of kind 'inference'");
  impl_->requireWeights();
  return {*impl_, *array};
}

bool Tile::retains() const { return impl_->device->retains(); }

void Tile::requireAge(double time, AgeFrom from) const {
  requireRetention(*this);
  impl_->device->requireAge(time, from);
}

void Tile::drift(double time, uint64_t redraw, AgeFrom from) {
  requireAge(time, from);
  std::vector<Age> ages = impl_->device->ages();
  for (Age &age : ages) age = {from == AgeFrom::Now ? age.time + time : time, redraw};
  setAges(ages);
}

std::vector<Age> Tile::ages() const { return impl_->device->ages(); }

void Tile::setAges(const std::vector<Age> &ages) {
  requireRetention(*this);
  impl_->device->requireAges(ages);
  impl_->reportNonfinite();
  const ScratchOperation operation(impl_->context);
  impl_->device->reserveCells(impl_->context);
  impl_->compensation->prepare(impl_->context, *impl_->device, impl_->changes());
  impl_->device->setAges(impl_->context, ages);
  impl_->compensation->measure(impl_->context, *impl_->device);
  impl_->evaluation = {};
}

Value::Map Tile::retention() const {
  Value::Map arrays;
  for (const NamedArray &each : impl_->device->arrays()) {
    const PulsedDevice &cells = each.array->cells();
    if (!cells.retains()) continue;
    arrays[each.name] = Value(Value::Map{{"model", Value(cells.retentionModel().model().name)},
                                         {"time", Value(cells.age().time)},
                                         {"redraw", Value(cells.age().redraw)}});
  }
  return arrays;
}

std::vector<float> Tile::ageCompensation() const {
  impl_->reportNonfinite();
  return impl_->compensation->factors(impl_->context);
}

// What the products of all reads are sums of, and which reads each kind of product is of if they
// are of several.
std::string Tile::explainProducts() const {
  AnalogDevice &device = *impl_->device;
  const std::vector<NamedArray> arrays = device.arrays();
  std::vector<std::pair<std::string, std::string>> kinds;  // of products, with names of reads
  bool forward = false;  // reads are forward, backward, forward, ...
  for (const AnalogRead *read : device.reads()) {
    forward = !forward;
    std::string name;
    for (const NamedArray &each : arrays) {
      const Pass pass = forward ? Pass::Forward : Pass::Backward;
      if (arrays.size() > 1 && &each.array->read(pass) == read) name = each.name + " ";
    }
    name += forward ? "forward" : "backward";
    std::string reason = read->whyNoIntegers();
    if (reason.empty()) reason = device.whyNoIntegers();
    const std::string product =
        reason.empty() ? message("integers of ", read->parameters().integerBits(), " bits")
                       : "floating point (" + reason + ")";
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto &kind) { return kind.first == product; });
    if (known == kinds.end()) {
      kinds.emplace_back(product, name);
    } else if (known->second.find(name) == std::string::npos) {  // not of a read in slices
      known->second += ", " + name;
    }
  }
  if (kinds.size() == 1) return kinds.front().first;
  std::string all;
  for (const auto &[product, names] : kinds)
    all += (all.empty() ? "" : "; ") + product + ": " + names;
  return all;
}

// Adds the ages of arrays, and a warning of what an update does first.
void Tile::explainRetention(Value::Map &map) const {
  std::string aged;
  for (const NamedArray &each : impl_->device->arrays()) {
    if (each.array->cells().isAged()) aged += (aged.empty() ? "" : ", ") + each.name;
  }
  map["retention"] = Value(retention());
  if (aged.empty()) return;
  map["warnings"].list()->push_back(Value(message(
      "reads see ", aged, " at an age; an update that changes one of them first makes its drift ",
      "permanent, and its age is then 0 s")));
}

Value::Map Tile::explain(MatrixView<const float> x, MatrixView<const float> d, float lr) const {
  requireShape(x, anyBatch(), {"x_size", xSize()}, "x", "explain");
  requireShape(d, batchOf(x), {"d_size", dSize()}, "d", "explain");
  requireLearningRate(lr);
  requireStep(impl_->context, x, d, lr);
  impl_->reportNonfinite();
  const ScratchOperation operation(impl_->context);
  Value::Map map = impl_->device->explain(impl_->context, x, d, lr);
  map["products"] = Value(explainProducts());
  if (retains()) explainRetention(map);
  return map;
}

Value::Map Tile::statistics() const {
  impl_->reportNonfinite();
  const ScratchOperation operation(impl_->context);
  Value::Map map = impl_->device->statistics(impl_->context);
  if (retains()) map["retention"] = Value(retention());
  return map;
}

size_t Tile::memoryBytes() const { return impl_->device->memoryBytes(); }

Value::Map Tile::hardwareCounts() const {
  impl_->reportNonfinite();
  const Counters &c = impl_->counters;
  HardwareCounts counts(impl_->context);
  counts.addWrites(c.events);
  impl_->device->countHardware(c, counts);
  Value::Map map = counts.describe();
  for (const NamedCounter &each : kCounters) map[each.name] = Value(c.*each.member);
  map.erase("events");
  return map;
}

}  // namespace pulsora
