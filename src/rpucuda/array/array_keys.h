#pragma once

#include <cstdint>

#include "numerics/random.h"

// Keys of the random numbers of a tile's arrays. A tile has any number of arrays, in slots 0, 1, 2,
// ...; each has streams of random numbers for different purposes, its roles. Slot and role together
// make the third coordinate of makeKey(), so that no two streams of a tile share a number.

namespace pulsora {

/// The use of a stream of random numbers of one array. The values are part of the random-number
/// contract: never renumber or reuse one, only append (to 15).
enum class Role : uint32_t {
  Cells = 0,       ///< sampled cells, noise of cycles and of writes, relaxation
  Update = 1,      ///< pulse trains
  Read = 2,        ///< periphery of the reads in both directions
  Projection = 3,  ///< reads that project x or d for an adapter's update
  Transfer = 4,    ///< one-hot reads that feed a transfer
  Start = 5,       ///< values that a re-initialisation gives the array
  Reference = 6,   ///< noise of the pulses that find the references of its cells
  Readout = 7,     ///< one-hot reads for drift compensation
  Writing = 8,     ///< cells that weights are programmed into by pulses, and their noise
};

/// Number of the stream of a role of the array in a slot. Different arguments give different
/// numbers; they are part of the random-number contract.
constexpr uint32_t streamOf(uint32_t slot, Role role) {
  // A single array, and the three arrays of a low-rank adapter (W, A, B in slots 0, 1, 2), had
  // numbers before there were slots; these numbers stay.
  constexpr uint32_t kNone = ~uint32_t{0};
  constexpr uint32_t kFirst[][3] = {{0, 1, 2},
                                    {8, 9, 10},
                                    {16, 17, 18},
                                    {kNone, 19, 20},
                                    {kNone, 21, 22},
                                    {kNone, kNone, 32},
                                    {kNone, kNone, kNone},
                                    {kNone, kNone, kNone},
                                    {kNone, kNone, kNone}};
  const auto r = static_cast<uint32_t>(role);
  if (slot < 3 && kFirst[r][slot] != kNone) return kFirst[r][slot];
  constexpr uint32_t kFirstFree = 64;
  constexpr uint32_t kRolesPerSlot = 16;
  return kFirstFree + slot * kRolesPerSlot + r;
}

/// Keys of a read: of its noise, and of the fixed spreads of its lines and converters.
struct ReadKeys {
  RandomKey noise;
  RandomKey spreads;

  ReadKeys(RandomKey both) : ReadKeys(both, both) {}  // NOLINT(google-explicit-constructor)
  ReadKeys(RandomKey noise_, RandomKey spreads_) : noise(noise_), spreads(spreads_) {}

  ReadKeys part(uint32_t number) const {
    return {partKey(noise, number), partKey(spreads, number)};
  }
};

/// Seed and number of a tile, which key its random numbers.
struct TileKeys {
  uint64_t seed = 0;
  uint32_t tileId = 0;
  /// Seed of everything that was sampled when the hardware was made. It differs from `seed` if the
  /// tile was given new noise since (Tile::reseed()).
  uint64_t cellSeed = seed;

  RandomKey of(uint32_t slot, Role role) const {
    return makeKey(seed, tileId, streamOf(slot, role));
  }
  ReadKeys ofRead(uint32_t slot, Role role) const {
    return {of(slot, role), makeKey(cellSeed, tileId, streamOf(slot, role))};
  }
};

}  // namespace pulsora
