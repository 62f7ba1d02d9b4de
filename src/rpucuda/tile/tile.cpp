#include "tile/tile.h"

#include <cmath>

#include "core/backend.h"
#include "core/cuda_api.h"
#include "core/reduce.h"
#include "lrtt/lrtt_transfer_device.h"
#include "array/cell_functors.h"
#include "compounds/single_device.h"

namespace RPU {
namespace {

constexpr int64_t kStateVersion = 1;

void checkContext(const Context &context) {
  RPU_CHECK(ConfigError, context.cpu.threads >= 1, "threads is ", context.cpu.threads,
            "; it must be >= 1");
  if (!context.onCpu()) requireCudaDevice(context.device);
}

std::unique_ptr<AnalogDevice> makeDevice(const Context &context, const TileConfig &config,
                                         int64_t dSize, int64_t xSize, uint64_t seed,
                                         uint32_t tileId) {
  switch (config.kind) {
    case TileConfig::Kind::Ideal:
      return std::make_unique<IdealDevice>(context, config, dSize, xSize, seed, tileId);
    case TileConfig::Kind::LRTT:
      return std::make_unique<LRTTTransferDevice>(context, config.lrtt, config.update,
                                                  config.forward, config.backward, dSize, xSize,
                                                  seed, tileId);
    case TileConfig::Kind::Single:
      break;
  }
  return std::make_unique<SingleDevice>(context, config, dSize, xSize, seed, tileId);
}

// On a GPU the fault word is set, and Impl::reportFault() throws later.
void requireFinite(const Context &context, MatrixView<const float> a, const char *name) {
  if (!context.onCpu()) {
    detail::cudaCheckFinite(context, a);
    return;
  }
  for (int64_t i = 0; i < a.rows; ++i) {
    const VectorView<const float> row = a.row(i);
    uint32_t bad = 0;
    for (int64_t j = 0; j < row.size; ++j)
      bad |= (bitCast<uint32_t>(row[j]) & 0x7F800000U) == 0x7F800000U ? 1U : 0U;
    if (!bad) continue;
    int64_t j = 0;
    while (std::isfinite(row[j])) ++j;
    throw InputError(message(
        name, "[", i, ", ", j, "] is ", row[j],
        "; every value must be finite (is the training diverging? lower the learning rate)"));
  }
}

// x and d of an update.
void requireFinite(const Context &context, MatrixView<const float> x, MatrixView<const float> d) {
  if (!context.onCpu()) {
    detail::cudaCheckFinite(context, x, d);
  } else {
    requireFinite(context, x, "x");
    requireFinite(context, d, "d");
  }
}

// On a GPU a read with a periphery looks at every input anyway, and so do pulse trains.
bool checksItself(const Context &context, const IOParameters &read) {
  return !context.onCpu() && !read.is_perfect;
}
bool checksItself(const Context &context, const TileConfig &config) {
  return !context.onCpu() && config.kind == TileConfig::Kind::Single &&
         !isDigital(config.update.pulse_type);
}

void requireShape(MatrixView<const float> a, int64_t rows, int64_t cols, const char *name,
                  const char *what) {
  RPU_CHECK(InputError, a.cols == cols && (rows < 0 || a.rows == rows), name, " has shape [",
            a.rows, ", ", a.cols, "]; ", what, " takes [",
            rows < 0 ? std::string("batch") : std::to_string(rows), ", ", cols, "]");
}

void requireLearningRate(float lr) {
  RPU_CHECK(ConfigError, std::isfinite(lr), "lr is ", lr, "; it must be a finite number");
}

}  // namespace

struct Tile::Impl {
  TileConfig config;
  Context context;
  uint64_t seed;
  uint32_t tileId;
  Counters counters;
  Buffer<uint32_t> fault;  // on a GPU; see Context
  std::unique_ptr<AnalogDevice> device;

  Impl(const TileConfig &config_, const Context &context_, int64_t dSize, int64_t xSize,
       uint64_t seed_, uint32_t tileId_)
      : config(config_), context(context_), seed(seed_), tileId(tileId_) {
    if (!context.onCpu()) fault = Buffer<uint32_t>::zeros(context, 1);
    context.fault = fault.data();
    device = makeDevice(context, config, dSize, xSize, seed, tileId);
  }
  ~Impl() {
    if (!context.onCpu())
      detail::cudaFinish(context);  // storage may have been made in an earlier stream
  }

  /// On a GPU: waits, and throws if an input since the last report was not finite. Updates have
  /// changed nothing since.
  void reportFault() {
    if (context.onCpu()) return;
    uint32_t bad = 0;
    detail::copyToHost(context, &bad, context.fault, sizeof bad);
    if (bad == 0) return;
    clearFault();
    throw InputError(
        "an input of an earlier call on this tile was not finite; updates since then have changed "
        "nothing (is the "
        "training diverging? lower the learning rate)");
  }
  /// For what is written at once: InputError unless every value is finite.
  void requireFiniteNow(MatrixView<const float> a, const char *name) {
    reportFault();
    requireFinite(context, a, name);
    if (!context.onCpu()) {
      uint32_t bad = 0;
      detail::copyToHost(context, &bad, context.fault, sizeof bad);
      clearFault();
      RPU_CHECK(InputError, bad == 0, name, " has values that are not finite; nothing was written");
    }
  }
  void clearFault() {
    if (!context.onCpu()) detail::fillZero(context, context.fault, fault.bytes());
  }

  LRTTTransferDevice &lrtt() {
    RPU_CHECK(ConfigError, config.kind == TileConfig::Kind::LRTT, "kind is '",
              EnumNames<TileConfig::Kind>::kNames[static_cast<int>(config.kind)],
              "', so the tile has no adapter; use a configuration of kind 'lrtt'");
    return static_cast<LRTTTransferDevice &>(*device);
  }
};

Tile::Tile(int64_t dSize, int64_t xSize, const TileConfig &config, uint64_t seed, uint32_t tileId,
           const Context &context) {
  RPU_CHECK(ConfigError, dSize >= 1, "d_size is ", dSize, "; it must be >= 1");
  RPU_CHECK(ConfigError, xSize >= 1, "x_size is ", xSize, "; it must be >= 1");
  RPU_CHECK(ConfigError,
            dSize <= INT32_MAX && xSize <= INT32_MAX && dSize <= (int64_t{1} << 32) / xSize,
            "a tile of size [", dSize, ", ", xSize,
            "] was asked for; a tile holds at most 2^32 cells: split the layer over several tiles");
  checkContext(context);
  checkParams(config, "");
  impl_ = std::make_unique<Impl>(config, context, dSize, xSize, seed, tileId);
}

Tile::~Tile() = default;
Tile::Tile(Tile &&) noexcept = default;
Tile &Tile::operator=(Tile &&) noexcept = default;

int64_t Tile::dSize() const { return impl_->device->dSize(); }
int64_t Tile::xSize() const { return impl_->device->xSize(); }
const TileConfig &Tile::config() const { return impl_->config; }
const Context &Tile::context() const { return impl_->context; }
uint64_t Tile::seed() const { return impl_->seed; }
uint32_t Tile::tileId() const { return impl_->tileId; }
const Counters &Tile::counters() const { return impl_->counters; }
AnalogDevice &Tile::device() { return *impl_->device; }
const AnalogDevice &Tile::device() const { return *impl_->device; }

void Tile::setContext(const Context &context) {
  checkContext(context);
  RPU_CHECK(ConfigError,
            context.backend == impl_->context.backend && context.device == impl_->context.device,
            "a tile stays on its device; save its state and load it into a tile made on the other "
            "device");
  if (!context.onCpu()) detail::cudaOrder(impl_->context, context);
  impl_->context = context;
  impl_->context.fault = impl_->fault.data();
}

void Tile::forward(MatrixView<const float> x, MatrixView<float> y) {
  requireShape(x, -1, xSize(), "x", "forward");
  requireShape(y, x.rows, dSize(), "y", "forward");
  if (!checksItself(impl_->context, impl_->config.forward)) requireFinite(impl_->context, x, "x");
  impl_->device->forward(impl_->context, x, y, impl_->counters);
  impl_->counters.forwardSamples += static_cast<uint64_t>(x.rows);
}

void Tile::backward(MatrixView<const float> d, MatrixView<float> dx) {
  requireShape(d, -1, dSize(), "d", "backward");
  requireShape(dx, d.rows, xSize(), "dx", "backward");
  if (!checksItself(impl_->context, impl_->config.backward)) requireFinite(impl_->context, d, "d");
  impl_->device->backward(impl_->context, d, dx, impl_->counters);
  impl_->counters.backwardSamples += static_cast<uint64_t>(d.rows);
}

void Tile::update(MatrixView<const float> x, MatrixView<const float> d, float lr) {
  requireShape(x, -1, xSize(), "x", "update");
  requireShape(d, x.rows, dSize(), "d", "update");
  requireLearningRate(lr);
  const bool isChecked = impl_->config.kind == TileConfig::Kind::LRTT
                             ? impl_->lrtt().checksUpdate(impl_->context, x.rows)
                             : checksItself(impl_->context, impl_->config);
  if (!isChecked) requireFinite(impl_->context, x, d);
  impl_->device->update(impl_->context, x, d, lr, impl_->counters);
  impl_->counters.updateSamples += static_cast<uint64_t>(x.rows);
}

void Tile::postUpdate(float lr) {
  requireLearningRate(lr);
  impl_->device->postUpdate(impl_->context, lr, impl_->counters);
  ++impl_->counters.miniBatches;
}

void Tile::getWeights(MatrixView<float> out) const {
  requireShape(out, dSize(), xSize(), "out", "getWeights");
  impl_->reportFault();
  impl_->device->getWeights(impl_->context, out);
}

void Tile::setWeights(MatrixView<const float> weights) {
  requireShape(weights, dSize(), xSize(), "weights", "setWeights");
  impl_->requireFiniteNow(weights, "weights");
  impl_->device->setWeights(impl_->context, weights, impl_->counters);
  ++impl_->counters.events;
}

const PulsedDevice &Tile::array(ArrayId which) const {
  if (impl_->config.kind == TileConfig::Kind::Single && which == ArrayId::Visible) {
    return static_cast<const SingleDevice &>(*impl_->device).array();
  }
  RPU_CHECK(ConfigError, impl_->config.kind != TileConfig::Kind::Ideal,
            "kind is 'ideal', so the tile has no pulsed array");
  const LRTTTransferDevice &lrtt = impl_->lrtt();
  if (which == ArrayId::FastA) return lrtt.adapter().a();
  return which == ArrayId::FastB ? lrtt.adapter().b() : lrtt.visible();
}

void Tile::getArray(ArrayId which, MatrixView<float> out) const {
  const PulsedDevice &from = array(which);
  requireShape(out, from.rows(), from.cols(), "out", "getArray");
  impl_->reportFault();
  forEach(impl_->context, out.size(), ElementCopier{from.weights(), out});
}

void Tile::setArray(ArrayId which, MatrixView<const float> weights) {
  const PulsedDevice &to = array(which);
  requireShape(weights, to.rows(), to.cols(), "weights", "setArray");
  if (impl_->config.kind == TileConfig::Kind::Single) return setWeights(weights);
  impl_->requireFiniteNow(weights, "weights");
  LRTTTransferDevice &lrtt = impl_->lrtt();
  if (which == ArrayId::FastA) {
    lrtt.adapter().setA(impl_->context, weights);
  } else if (which == ArrayId::FastB) {
    lrtt.adapter().setB(impl_->context, weights);
  } else {
    lrtt.setVisible(impl_->context, weights, impl_->counters);
  }
  ++impl_->counters.events;
}

void Tile::forwardGated(MatrixView<const float> x, MatrixView<const float> gate,
                        MatrixView<float> y, MatrixView<float> read) {
  LRTTTransferDevice &lrtt = impl_->lrtt();
  requireShape(x, -1, xSize(), "x", "forward");
  requireShape(gate, x.rows, lrtt.settings().rank, "gate", "forward");
  requireShape(y, x.rows, dSize(), "y", "forward");
  requireShape(read, x.rows, lrtt.settings().rank, "read", "forward");
  requireFinite(impl_->context, x, "x");
  requireFinite(impl_->context, gate, "gate");
  lrtt.forwardGated(impl_->context, x, gate, y, read, impl_->counters);
  impl_->counters.forwardSamples += static_cast<uint64_t>(x.rows);
}

void Tile::backwardGated(MatrixView<const float> d, MatrixView<const float> gate,
                         MatrixView<const float> read, MatrixView<float> dx,
                         MatrixView<float> gateGradient) {
  LRTTTransferDevice &lrtt = impl_->lrtt();
  requireShape(d, -1, dSize(), "d", "backward");
  requireShape(gate, d.rows, lrtt.settings().rank, "gate", "backward");
  requireShape(read, d.rows, lrtt.settings().rank, "read", "backward");
  requireShape(dx, d.rows, xSize(), "dx", "backward");
  requireShape(gateGradient, d.rows, lrtt.settings().rank, "gate_gradient", "backward");
  requireFinite(impl_->context, d, "d");
  requireFinite(impl_->context, gate, "gate");
  requireFinite(impl_->context, read, "read");
  lrtt.backwardGated(impl_->context, d, gate, read, dx, gateGradient, impl_->counters);
  impl_->counters.backwardSamples += static_cast<uint64_t>(d.rows);
}

void Tile::updateGated(MatrixView<const float> x, MatrixView<const float> d,
                       MatrixView<const float> gate, float lr) {
  LRTTTransferDevice &lrtt = impl_->lrtt();
  requireShape(x, -1, xSize(), "x", "update");
  requireShape(d, x.rows, dSize(), "d", "update");
  requireShape(gate, x.rows, lrtt.settings().rank, "gate", "update");
  requireLearningRate(lr);
  requireFinite(impl_->context, x, d);
  requireFinite(impl_->context, gate, "gate");
  lrtt.updateGated(impl_->context, x, d, gate, lr, impl_->counters);
  impl_->counters.updateSamples += static_cast<uint64_t>(x.rows);
}

void Tile::transfer() { impl_->lrtt().transfer(impl_->context); }

void Tile::setReinitVectors(MatrixView<const float> vectors) {
  impl_->requireFiniteNow(vectors, "vectors");
  impl_->lrtt().adapter().setReinitVectors(impl_->context, vectors);
}

Value::Map Tile::explain(MatrixView<const float> x, MatrixView<const float> d, float lr) const {
  requireShape(x, -1, xSize(), "x", "explain");
  requireShape(d, x.rows, dSize(), "d", "explain");
  requireLearningRate(lr);
  requireFinite(impl_->context, x, d);
  impl_->reportFault();
  return impl_->device->explain(impl_->context, x, d, lr);
}

Value::Map Tile::statistics() const {
  impl_->reportFault();
  return impl_->device->statistics(impl_->context);
}

State Tile::state() const {
  impl_->reportFault();
  const Impl &t = *impl_;
  State state;
  t.device->saveTo(t.context, state, "");
  state.values["version"] = Value(kStateVersion);
  state.values["config"] = writeParams(t.config);
  state.values["d_size"] = Value(dSize());
  state.values["x_size"] = Value(xSize());
  state.values["seed"] =
      Value(std::to_string(t.seed));  // 64 bits do not fit every reader's integers
  state.values["tile_id"] = Value(static_cast<int64_t>(t.tileId));
  state.values["forward_samples"] = Value(t.counters.forwardSamples);
  state.values["backward_samples"] = Value(t.counters.backwardSamples);
  state.values["update_samples"] = Value(t.counters.updateSamples);
  state.values["mini_batches"] = Value(t.counters.miniBatches);
  state.values["events"] = Value(t.counters.events);
  return state;
}

void Tile::loadState(const State &state) {
  Impl &t = *impl_;
  t.clearFault();
  const State mine = this->state();
  RPU_CHECK(StateError, state.counter("version") == static_cast<uint64_t>(kStateVersion),
            "the state has version ", state.counter("version"), "; this build reads version ",
            kStateVersion);
  for (const char *name : {"config", "d_size", "x_size", "tile_id", "seed"}) {
    const auto found = state.values.find(name);
    RPU_CHECK(StateError, found != state.values.end() && found->second == mine.values.at(name),
              "the state has another '", name,
              "' than this tile; load it into a tile of the same sizes, configuration and seed");
  }
  for (const auto &entry : mine.tensors)
    state.get(entry.first, entry.second.type, entry.second.shape);
  for (const auto &entry : state.tensors) {
    RPU_CHECK(StateError, mine.tensors.count(entry.first), "the state has a tensor '", entry.first,
              "' that this tile does not know; it belongs to another configuration");
    RPU_CHECK(StateError, entry.second.bytes.size() == mine.tensors.at(entry.first).bytes.size(),
              "tensor '", entry.first, "' of the state is truncated");
  }
  for (const auto &entry : mine.values) {
    const auto found = state.values.find(entry.first);
    RPU_CHECK(StateError, found != state.values.end(), "the state lacks '", entry.first,
              "'; it is incomplete");
    if (entry.second.integer()) state.counter(entry.first);
    RPU_CHECK(StateError, !entry.second.real() || found->second.real() || found->second.integer(),
              "the state's '", entry.first, "' is ", found->second.describe(),
              "; it must be a number: the state is damaged");
  }
  Counters counters;
  counters.forwardSamples = state.counter("forward_samples");
  counters.backwardSamples = state.counter("backward_samples");
  counters.updateSamples = state.counter("update_samples");
  counters.miniBatches = state.counter("mini_batches");
  counters.events = state.counter("events");
  try {
    t.device->loadFrom(t.context, state, "");
  } catch (...) {
    t.device->loadFrom(t.context, mine, "");
    throw;
  }
  t.counters = counters;
}

}  // namespace RPU
