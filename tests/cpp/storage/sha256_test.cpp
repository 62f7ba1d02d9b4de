#include "storage/sha256.h"

#include <gtest/gtest.h>
#include <string>

namespace pulsora {
namespace {

TEST(Sha256, HasTheDigestsOfTheStandard) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PartsAreOneText) {
  const std::string text(200, 'x');
  for (size_t cut : {0u, 1u, 55u, 56u, 63u, 64u, 65u, 199u}) {
    Sha256 sum;
    sum.add(text.substr(0, cut));
    sum.add(text.substr(cut));
    EXPECT_EQ(sum.hex(), sha256(text)) << cut;
  }
}

TEST(Sha256, TextsInARowKeepTheirBorders) {
  Sha256 first, second;
  first.addText("ab");
  first.addText("c");
  second.addText("a");
  second.addText("bc");
  EXPECT_NE(first.hex(), second.hex());
}

}  // namespace
}  // namespace pulsora
