#pragma once

#include <cstddef>
#include <cstdint>

namespace pulsora {

/// The CRC-64/XZ checksum of bytes that are handed over in parts: polynomial 42F0E1EBA9EA3693,
/// reflected; the checksum of "123456789" is 995DC9BBDF1939FA. A change within 64 successive bits
/// always changes it; any other change leaves it alone with probability 2^-64. The checksum guards
/// against damage, not against forgery. Large parts are read by all CPU threads.
class Crc64 {
 public:
  void add(const void *bytes, size_t count);
  uint64_t value() const { return ~rest_; }

 private:
  uint64_t rest_ = ~uint64_t{0};
};

}  // namespace pulsora
