#include "storage/checksum.h"

#include <array>

namespace pulsora {
namespace {

constexpr uint64_t kPolynomial = 0xC96C5795D7870F42U;  // 42F0E1EBA9EA3693 with its bits reversed
constexpr size_t kStride = 16;                         // bytes per step

using Table = std::array<uint64_t, 256>;

/// Entry [k][b] is the remainder of byte b followed by k zero bytes.
constexpr std::array<Table, kStride> makeTables() {
  std::array<Table, kStride> tables{};
  for (uint64_t b = 0; b < 256; ++b) {
    uint64_t rest = b;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = rest;
  }
  for (size_t k = 1; k < kStride; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint64_t shorter = tables[k - 1][b];
      tables[k][b] = (shorter >> 8) ^ tables[0][shorter & 0xFF];
    }
  }
  return tables;
}

constexpr std::array<Table, kStride> kTables = makeTables();

uint64_t word(const unsigned char *bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) number |= uint64_t{bytes[i]} << (8 * i);
  return number;
}

}  // namespace

void Crc64::add(const void *bytes, size_t count) {
  const auto *at = static_cast<const unsigned char *>(bytes);
  uint64_t rest = rest_;
  for (; count >= kStride; count -= kStride, at += kStride) {
    const uint64_t first = rest ^ word(at);
    const uint64_t second = word(at + 8);
    rest = 0;
    for (size_t i = 0; i < 8; ++i) {
      rest ^= kTables[15 - i][(first >> (8 * i)) & 0xFF];
      rest ^= kTables[7 - i][(second >> (8 * i)) & 0xFF];
    }
  }
  for (; count > 0; --count, ++at) rest = (rest >> 8) ^ kTables[0][(rest ^ *at) & 0xFF];
  rest_ = rest;
}

}  // namespace pulsora
