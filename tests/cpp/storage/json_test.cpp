#include "storage/json.h"

#include <clocale>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <string>

#include "core/check.h"

namespace pulsora {
namespace {

std::string refusal(const std::string &text) {
  try {
    parseJson(text);
  } catch (const StateError &error) {
    return error.what();
  }
  return "";
}

TEST(Json, ReadsEveryKindOfValue) {
  const Value value = parseJson(
      " {\"a\" : [1, -2, 0, 1.5e3, 2.0, true, false, null],\n\t\"b\": {}, \"c\": [ ], \"d\": "
      "\"x\"} ");
  const Value::List list = {Value(1),   Value(-2),   Value(0),     Value(1500.0),
                            Value(2.0), Value(true), Value(false), Value()};
  EXPECT_EQ(value, Value(Value::Map{{"a", Value(list)},
                                    {"b", Value(Value::Map{})},
                                    {"c", Value(Value::List{})},
                                    {"d", Value("x")}}));
}

TEST(Json, ReadsEscapesAndUtf8) {
  EXPECT_EQ(parseJson(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00")"),
            Value("\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
  const std::string plain = "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xEF\xBF\xBF";
  EXPECT_EQ(parseJson('"' + plain + '"'), Value(plain));
}

TEST(Json, RefusesWhatIsNotJson) {
  const char *const faulty[] = {"",
                                " ",
                                "{",
                                "[",
                                "\"",
                                "{\"a\"",
                                "{\"a\":",
                                "{\"a\":1",
                                "{\"a\":1,}",
                                "{,}",
                                "{1:2}",
                                "[1,]",
                                "[1 2]",
                                "[,1]",
                                "1 2",
                                "tru",
                                "True",
                                "nul",
                                "NaN",
                                "Infinity",
                                "-Infinity",
                                "-",
                                "+1",
                                "01",
                                "1.",
                                ".5",
                                "1e",
                                "1e+",
                                "0x1",
                                "--1",
                                "'a'",
                                "\"\\x\"",
                                "\"\\u12\"",
                                "\"\\u12g4\"",
                                "\"\\ud800\"",
                                "\"\\ud800\\u0041\"",
                                "\"\\udc00\"",
                                "\"\n\"",
                                "{\"a\":1}}",
                                "// x\n1"};
  for (const char *text : faulty) EXPECT_NE(refusal(text), "") << text;
  EXPECT_NE(refusal("{\"a\": 1, \"a\": 2}").find("byte 12: a name of this object occurs twice"),
            std::string::npos);
}

TEST(Json, RefusesWhatIsNotUtf8) {
  // A stray or missing continuation, a form that is too long, half a surrogate pair, beyond the
  // end.
  for (const char *bytes : {"\x80", "\xC3", "\xC3(", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80",
                            "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_NE(refusal(std::string("\"") + bytes + "\"").find("UTF-8"), std::string::npos);
    EXPECT_THROW(writeJson(Value(std::string(bytes))), StateError);
  }
}

TEST(Json, KeepsIntegersOf64BitsAndRefusesLargerOnes) {
  for (const int64_t number :
       {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(parseJson(std::to_string(number)), Value(number));
    EXPECT_EQ(writeJson(Value(number)), std::to_string(number));
  }
  EXPECT_NE(refusal("9223372036854775808").find("beyond 64 bits"), std::string::npos);
  EXPECT_NE(refusal("1e400").find("number overflow"), std::string::npos);
}

TEST(Json, KeepsTheBitsOfDoublesInAnyLocale) {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  for (const char *locale : {"C", "de_DE.UTF-8", "de_DE.utf8"}) {
    if (!std::setlocale(LC_NUMERIC, locale)) continue;  // not installed on every machine
    for (const double number : {0.0, -0.0, 1.0, 0.1, 1.0 / 3.0, 0.007936508, 1e22, 1e-7, 5e-324,
                                std::numeric_limits<double>::max()}) {
      const Value back = parseJson(writeJson(Value(number)));
      ASSERT_TRUE(back.real()) << number;
      EXPECT_EQ(*back.real(), number);
      EXPECT_EQ(std::signbit(*back.real()), std::signbit(number));
    }
  }
  std::setlocale(LC_NUMERIC, before.c_str());
  EXPECT_EQ(writeJson(Value(0.1)), "0.1");
  EXPECT_EQ(writeJson(Value(2.0)), "2.0");
}

TEST(Json, WritesWhatItReads) {
  Value::List text;
  for (char c = 1; c < 127; ++c) text.emplace_back(std::string(1, c) + "\xC3\xA9");
  const Value value(Value::Map{{"", Value()},
                               {"text", Value(text)},
                               {"nested", Value(Value::List{Value(Value::Map{{"x", Value(1)}})})},
                               {"flag", Value(true)}});
  EXPECT_EQ(parseJson(writeJson(value)), value);
  EXPECT_EQ(writeJson(Value(Value::Map{{"b", Value(1)}, {"a", Value("\x01\"")}})),
            "{\"a\": \"\\u0001\\\"\", \"b\": 1}");
  EXPECT_THROW(writeJson(Value(std::nan(""))), StateError);
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_NO_THROW(parseJson(nested(kMaxJsonDepth)));
  EXPECT_NE(refusal(nested(kMaxJsonDepth + 1)).find("nested too deep"), std::string::npos);
  EXPECT_NE(refusal(std::string(1 << 20, '[')).find("nested too deep"), std::string::npos);
}

}  // namespace
}  // namespace pulsora
