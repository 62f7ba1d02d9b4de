#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pulsora {

/// SHA-256 (FIPS 180-4) of bytes that are handed over in parts.
class Sha256 {
 public:
  void add(std::string_view bytes);
  /// Adds the length of a text and the text, so that texts in a row keep their borders.
  void addText(std::string_view text);
  /// The digest in 64 hexadecimal digits. Nothing may be added afterwards.
  std::string hex();

 private:
  void takeBlock();

  std::array<uint32_t, 8> state_{0x6A09E667U, 0xBB67AE85U, 0x3C6EF372U, 0xA54FF53AU,
                                 0x510E527FU, 0x9B05688CU, 0x1F83D9ABU, 0x5BE0CD19U};
  std::array<unsigned char, 64> block_{};
  uint64_t bytes_ = 0;
};

/// The digest of `bytes` in hexadecimal digits, as sha256sum prints it.
std::string sha256(std::string_view bytes);

}  // namespace pulsora
