#include "parameters/value.h"

#include <gtest/gtest.h>

namespace pulsora {
namespace {

TEST(Value, HoldsOneTypeAtATime) {
  EXPECT_TRUE(Value().isNull());
  EXPECT_EQ(*Value(true).boolean(), true);
  EXPECT_EQ(Value(true).integer(), nullptr);
  EXPECT_EQ(*Value(3).integer(), 3);
  EXPECT_EQ(Value(3).real(), nullptr);
  EXPECT_EQ(*Value(0.5).real(), 0.5);
  EXPECT_EQ(*Value("a").text(), "a");
  EXPECT_EQ(Value("a").boolean(), nullptr);  // text must not decay to bool
  EXPECT_EQ(Value(Value::List{1, 2}).list()->size(), 2u);
  EXPECT_EQ(*Value(Value::Map{{"k", 1}}).map()->at("k").integer(), 1);
}

TEST(Value, ComparesByTypeAndContent) {
  EXPECT_EQ(Value(Value::List{1, "a", Value()}), Value(Value::List{1, "a", Value()}));
  EXPECT_NE(Value(1), Value(1.0));
  EXPECT_NE(Value(Value::Map{{"k", 1}}), Value(Value::Map{{"k", 2}}));
}

TEST(Value, DescribesItselfShortly) {
  EXPECT_EQ(Value().describe(), "None");
  EXPECT_EQ(Value(false).describe(), "False");
  EXPECT_EQ(Value(-4).describe(), "-4");
  EXPECT_EQ(Value(0.5).describe(), "0.5");
  EXPECT_EQ(Value("abc").describe(), "'abc'");
  EXPECT_EQ(Value(Value::List{1, 2}).describe(), "[1, 2]");
  EXPECT_EQ(Value(Value::List(9, Value(1))).describe(), "[1, 1, 1, 1, 1, 1, 1, 1, ...]");
  EXPECT_EQ(Value(Value::Map{}).describe(), "{...}");
}

}  // namespace
}  // namespace pulsora
