#pragma once

#include <cstddef>
#include <cstdint>

namespace pulsora {

/// The checksum CRC-64/XZ of bytes that are handed over in parts: polynomial 42F0E1EBA9EA3693,
/// reflected, that of "123456789" is 995DC9BBDF1939FA. Any change that lies within 64 successive
/// bits changes it, and any other leaves it alone with probability 2^-64. It guards against damage,
/// not against forgery.
class Crc64 {
 public:
  void add(const void *bytes, size_t count);
  uint64_t value() const { return ~rest_; }

 private:
  uint64_t rest_ = ~uint64_t{0};
};

}  // namespace pulsora
