#include "storage/checksum.h"

#include <array>
#include <vector>

#include "core/backend.h"
#include "core/buffer.h"

namespace pulsora {
namespace {

constexpr uint64_t kPolynomial = Crc64OfPieces::kPolynomial;
constexpr size_t kStride = 16;  // bytes per step

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

// The product of two remainders, as polynomials whose highest bit is the constant term.
constexpr uint64_t product(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  for (; a != 0; a <<= 1) {
    if ((a >> 63) != 0) sum ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return sum;
}

// The remainder of one followed by 2^log zero bytes.
constexpr uint64_t pastZeros(int log) {
  uint64_t power = uint64_t{1} << 62;  // x
  for (int i = 0; i < log + 3; ++i) power = product(power, power);
  return power;
}

constexpr int kLogPiece = 20;  // pieces of 2^20 bytes for the threads
constexpr size_t kPiece = size_t{1} << kLogPiece;
constexpr uint64_t kPastPiece = pastZeros(kLogPiece);
constexpr int kLogGpuPiece = 13;
constexpr size_t kGpuPiece = size_t{1} << kLogGpuPiece;
constexpr uint64_t kPastGpuPiece = pastZeros(kLogGpuPiece);

// The remainder of bytes that follow others, whose remainder is `rest`.
uint64_t remainderOf(uint64_t rest, const unsigned char *at, size_t count) {
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
  return rest;
}

}  // namespace

void Crc64::add(const void *bytes, size_t count) {
  const auto *at = static_cast<const unsigned char *>(bytes);
  std::vector<uint64_t> rests(count / kPiece);
  parallelRange(Context{}, static_cast<int64_t>(rests.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      rests[i] = remainderOf(0, at + i * kPiece, kPiece);
  });
  // Remainders are linear in the bytes.
  for (const uint64_t rest : rests) rest_ = product(rest_, kPastPiece) ^ rest;
  rest_ = remainderOf(rest_, at + rests.size() * kPiece, count % kPiece);
}

void Crc64::add(const Context &context, const void *bytes, size_t count) {
  if (context.onCpu()) return add(bytes, count);
  std::vector<uint64_t> rests(count / kGpuPiece);
  const auto pieces = static_cast<int64_t>(rests.size());
  Buffer<uint64_t> found(context, pieces);
  forEach(context, pieces,
          Crc64OfPieces{static_cast<const uint64_t *>(bytes),
                        static_cast<int64_t>(kGpuPiece / sizeof(uint64_t)), found.data()});
  detail::copyToHost(context, rests.data(), found.data(), rests.size() * sizeof(uint64_t));
  for (const uint64_t rest : rests) rest_ = product(rest_, kPastGpuPiece) ^ rest;
  std::vector<unsigned char> tail(count % kGpuPiece);
  const auto *at = static_cast<const unsigned char *>(bytes) + rests.size() * kGpuPiece;
  detail::copyToHost(context, tail.data(), at, tail.size());
  add(tail.data(), tail.size());
}

}  // namespace pulsora
