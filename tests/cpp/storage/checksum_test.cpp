#include "storage/checksum.h"

#include <gtest/gtest.h>
#include <string>

namespace pulsora {
namespace {

uint64_t checksumOf(const std::string &bytes) {
  Crc64 sum;
  sum.add(bytes.data(), bytes.size());
  return sum.value();
}

/// Bit by bit, as the definition has it.
uint64_t plainly(const std::string &bytes) {
  uint64_t rest = ~uint64_t{0};
  for (const char byte : bytes) {
    rest ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit)
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0xC96C5795D7870F42U : 0);
  }
  return ~rest;
}

TEST(Checksum, IsCrc64Xz) {
  EXPECT_EQ(checksumOf("123456789"), 0x995DC9BBDF1939FAU);
  EXPECT_EQ(checksumOf(""), 0U);
}

TEST(Checksum, IsTheSameInAnyParts) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += static_cast<char>(i * i);
  for (size_t length = 0; length <= bytes.size(); length += 7) {
    const std::string text = bytes.substr(0, length);
    EXPECT_EQ(checksumOf(text), plainly(text)) << length;
    Crc64 parts;
    parts.add(text.data(), length / 3);
    parts.add(text.data() + length / 3, length - length / 3);
    EXPECT_EQ(parts.value(), plainly(text)) << length;
  }
}

TEST(Checksum, LongTextsAreReadInPieces) {
  std::string bytes((size_t{3} << 20) + 5, ' ');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i / 7);
  EXPECT_EQ(checksumOf(bytes), plainly(bytes));
  const std::string start = "abc";
  Crc64 after;
  after.add(start.data(), start.size());
  after.add(bytes.data(), bytes.size());
  EXPECT_EQ(after.value(), plainly(start + bytes));
}

TEST(Checksum, EveryChangedBitShows) {
  const std::string bytes(100, 'x');
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(checksumOf(changed), checksumOf(bytes)) << bit;
  }
}

}  // namespace
}  // namespace pulsora
