#pragma once

#include <memory>

#include "core/buffer.h"
#include "core/cuda_api.h"
#include "tile/tile.h"
#include "tile/tile_checks.h"

namespace RPU {

/// What a Tile is made of; for the sources in tile/ alone.
struct Tile::Impl {
  TileConfig config;
  Context context;
  TileKeys keys;
  Counters counters;
  Buffer<uint32_t> fault;  // on a GPU; see Context
  std::unique_ptr<AnalogDevice> device;

  Impl(const TileConfig &config_, const Context &context_, int64_t dSize, int64_t xSize,
       const TileKeys &keys_)
      : config(config_), context(context_), keys(keys_) {
    if (!context.onCpu()) fault = Buffer<uint32_t>::zeros(context, 1);
    context.fault = fault.data();
    device = config.compound.make({context, dSize, xSize, config, keys});
  }
  ~Impl() {
    if (!context.onCpu())
      detail::cudaFinish(context);  // storage may have been made in an earlier stream
  }
  Impl(const Impl &) = delete;
  Impl &operator=(const Impl &) = delete;

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
        "nothing (is the training diverging? lower the learning rate)");
  }
  /// For digital writes: waits for a GPU; InputError unless every value is finite.
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
  /// Checks the inputs of a read, unless it is a GPU's with a periphery, which checks them itself.
  void requireFiniteRead(const IOParameters &periphery, MatrixView<const float> in,
                         const char *name) const {
    if (context.onCpu() || periphery.is_perfect) requireFinite(context, in, name);
  }
};

}  // namespace RPU
