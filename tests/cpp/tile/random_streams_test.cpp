#include <array>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "array/array_keys.h"
#include "numerics/random.h"

// Property 39: no random number serves two purposes.

namespace pulsora::testing {
namespace {

constexpr Role kRoles[] = {Role::Cells,    Role::Update, Role::Read,     Role::Projection,
                           Role::Transfer, Role::Start,  Role::Reference};
constexpr uint32_t kSlots = 5;  // three with numbers of their own, and two by the rule

TEST(Tile, Property39_StreamsOfATileKeepTheirNumbers) {
  // Part of the contract of random numbers: saved tiles go on with them.
  EXPECT_EQ(streamOf(0, Role::Cells), 0u);
  EXPECT_EQ(streamOf(2, Role::Cells), 2u);
  EXPECT_EQ(streamOf(1, Role::Update), 9u);
  EXPECT_EQ(streamOf(2, Role::Read), 18u);
  EXPECT_EQ(streamOf(1, Role::Projection), 19u);
  EXPECT_EQ(streamOf(2, Role::Transfer), 22u);
  EXPECT_EQ(streamOf(2, Role::Start), 32u);
  EXPECT_EQ(streamOf(3, Role::Update), 64u + 3u * 16u + 1u);
  std::set<uint32_t> numbers;
  for (uint32_t slot = 0; slot < 1000; ++slot) {
    for (const Role role : kRoles) numbers.insert(streamOf(slot, role));
  }
  EXPECT_EQ(numbers.size(), 1000 * std::size(kRoles));
}

TEST(Tile, Property39_EveryArrayOfEveryTileHasItsOwnKey) {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  size_t made = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{1000}}) {
    for (uint32_t tile = 0; tile < 64; ++tile) {
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        for (const Role role : kRoles) {
          const RandomKey key = TileKeys{seed, tile}.of(slot, role);
          keys.insert({key.k0, key.k1});
          ++made;
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), made);
}

/// Blocks of random words by the purpose of their draws. A block may be drawn again for the same
/// purpose (samples share blocks), never for another.
class Audit {
 public:
  void use(RandomKey key, Purpose purpose, int64_t element, uint64_t sample, uint32_t index,
           const std::string &what) {
    const Philox4 c = makeCounter(purpose, static_cast<uint64_t>(element), sample, index);
    const auto [at, isNew] =
        owner_.try_emplace({key.k0, key.k1, c.v[0], c.v[1], c.v[2], c.v[3]}, what);
    if (!isNew && at->second != what) collisions_.push_back(what + " and " + at->second);
  }
  size_t blocks() const { return owner_.size(); }
  const std::vector<std::string> &collisions() const { return collisions_; }

 private:
  std::map<std::array<uint32_t, 6>, std::string> owner_;
  std::vector<std::string> collisions_;
};

/// The coordinates at which an array draws, as its sources document them, for a few steps of a
/// tile.
void auditArray(Audit &audit, RandomKey key, const std::string &name, int64_t cells,
                uint64_t samples) {
  for (int64_t cell = 0; cell < cells; ++cell) {
    const std::string at = name + " cell " + std::to_string(cell) + ' ';
    for (uint32_t pair = 0; pair < 16; ++pair)
      audit.use(key, Purpose::Construct, cell, 0, pair, at + "construct " + std::to_string(pair));
    for (const Purpose purpose : {Purpose::Decay, Purpose::Diffusion, Purpose::Reset}) {
      const auto index = (1U << 16) + static_cast<uint32_t>(purpose);
      audit.use(key, Purpose::Construct, cell, 0, index, at + "spread " + std::to_string(index));
    }
    for (uint64_t s = 0; s < samples; ++s) {
      const std::string eight = std::to_string(s / 8);
      audit.use(key, Purpose::CycleNoise, cell, s / 8, 0, at + "cycle noise " + eight);
      for (uint32_t pulse = 1; pulse < 31; ++pulse) {
        audit.use(key, Purpose::CyclePulse, cell, s, pulse / 8,
                  at + "pulses " + std::to_string(s) + '/' + std::to_string(pulse / 8));
      }
      audit.use(key, Purpose::Diffusion, cell, s / 8, 0, at + "diffusion " + eight);
      audit.use(key, Purpose::Reset, cell, s, 0, at + "reset " + std::to_string(s));
      for (uint64_t range = 0; range < 4;
           ++range) {  // after samples, mini-batches, resets and settings
        audit.use(key, Purpose::WriteNoise, cell, ((range << 46) + s) / 8, 0,
                  at + "write noise " + std::to_string(range) + '/' + eight);
      }
    }
  }
}

void auditTrains(Audit &audit, RandomKey key, const std::string &name, int64_t lines,
                 uint64_t samples) {
  for (int64_t line = 0; line < lines; ++line) {
    for (uint64_t s = 0; s < samples; ++s) {
      const std::string at = name + " line " + std::to_string(line) + ' ';
      for (uint32_t slot = 0; slot < 33; ++slot) {
        const std::string four = std::to_string(s / 4) + '/' + std::to_string(slot);
        audit.use(key, Purpose::XPulse, line, s / 4, slot, at + "x " + four);
        audit.use(key, Purpose::DPulse, line, s / 4, slot, at + "d " + four);
        audit.use(key, Purpose::DPulse, line, s / 4, (1U << 20) + slot,
                  at + "d, second pass " + four);
      }
      audit.use(key, Purpose::XRound, line, s, 0, at + "x rounding " + std::to_string(s));
      audit.use(key, Purpose::DRound, line, s, 0, at + "d rounding " + std::to_string(s));
    }
  }
}

TEST(Tile, Property39_NoBlockOfASmallTileServesTwoPurposes) {
  Audit audit;
  constexpr uint64_t kSamples = 20;
  for (const uint32_t tile : {0U, 1U}) {
    const std::string prefix = "tile " + std::to_string(tile) + " array ";
    for (uint32_t id = 0; id < kSlots * std::size(kRoles); ++id) {
      const Role role = kRoles[id % std::size(kRoles)];
      const auto slot = static_cast<uint32_t>(id / std::size(kRoles));
      const RandomKey key = TileKeys{7, tile}.of(slot, role);
      const std::string name = prefix + std::to_string(id);
      if (role == Role::Cells) {
        auditArray(audit, key, name, 12, kSamples);
      } else if (role == Role::Update) {
        auditTrains(audit, key, name, 4, kSamples);
      } else {
        for (int64_t element = 0; element < 4; ++element) {
          for (uint64_t s = 0; s < kSamples; ++s) {
            for (uint32_t p = static_cast<uint32_t>(Purpose::ForwardInputNoise);
                 p <= static_cast<uint32_t>(Purpose::Reinit); ++p) {
              audit.use(key, static_cast<Purpose>(p), element, s, 0,
                        name + ' ' + std::to_string(p) + '/' + std::to_string(element) + '/' +
                            std::to_string(s));
            }
          }
        }
      }
    }
  }
  EXPECT_GT(audit.blocks(), 20000u);
  EXPECT_TRUE(audit.collisions().empty()) << audit.collisions().front();
}

}  // namespace
}  // namespace pulsora::testing
