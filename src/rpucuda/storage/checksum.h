#pragma once

#include <cstddef>
#include <cstdint>

#include "core/context.h"
#include "core/platform.h"

namespace pulsora {

/// out[i] = remainder of piece i of bytes that are read as little-endian words, for GPUs.
struct Crc64OfPieces {
  /// 42F0E1EBA9EA3693 with its bits reversed.
  static constexpr uint64_t kPolynomial = 0xC96C5795D7870F42U;

  const uint64_t *words;
  int64_t wordsOfPiece;
  uint64_t *out;

  PULSORA_HD void operator()(int64_t i) const {
    uint64_t rest = 0;
    for (int64_t k = i * wordsOfPiece; k < (i + 1) * wordsOfPiece; ++k) {
      rest ^= words[k];
      for (int bit = 0; bit < 64; ++bit) rest = (rest >> 1) ^ ((rest & 1) * kPolynomial);
    }
    out[i] = rest;
  }
};

/// The CRC-64/XZ checksum of bytes that are handed over in parts: polynomial 42F0E1EBA9EA3693,
/// reflected; the checksum of "123456789" is 995DC9BBDF1939FA. A change within 64 successive bits
/// always changes it; any other change leaves it alone with probability 2^-64. The checksum guards
/// against damage, not against forgery. Large parts are read by all CPU threads.
class Crc64 {
 public:
  void add(const void *bytes, size_t count);
  /// Adds bytes in the memory of the context's backend, at a multiple of 8.
  void add(const Context &context, const void *bytes, size_t count);
  uint64_t value() const { return ~rest_; }

 private:
  uint64_t rest_ = ~uint64_t{0};
};

}  // namespace pulsora
