#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace adjoint {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_json(text, "a.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

TEST(Json, IsWhatTheLibraryReads) {
  for (const char* text :
       {"null", "true", "-7", "1.5e3", "18446744073709551615", "\"a\\u00e9\\ud83d\\ude00\\u0000\"",
        "[]", "{}", R"([1, [2, {"a": [], "b": {"a": null}}], "x"])",
        " \n{\"z\": 1,\t\"a\": {\"z\": [false]}}\r\n"}) {
    EXPECT_EQ(parse_json(text, "a.json"), nlohmann::json::parse(text)) << text;
  }
}

TEST(Json, RefusesAndNamesThePlace) {
  EXPECT_EQ(refusal(""), "a.json:1:1: this is not JSON");
  EXPECT_EQ(refusal("{\n \"a\": 1,\n}"), "a.json:3:1: this is not JSON");
  EXPECT_EQ(refusal("{} x"), "a.json:1:4: this is not JSON");
  EXPECT_EQ(refusal("[1e999]"), "a.json:1:6: this number is too large");
  EXPECT_EQ(refusal("\"\\ud800\""), "a.json:1:8: this is not JSON");
  EXPECT_EQ(refusal("\"\\udc00\""), "a.json:1:7: this is not JSON");
  EXPECT_EQ(refusal("\"\xFF\""), "a.json:1:2: this is not JSON");
  EXPECT_EQ(refusal(std::string_view("\"a\0b\"", 5)), "a.json:1:3: this is not JSON");
  EXPECT_EQ(refusal("{\"a\": 1,\n\"a\": 2}"),
            "a.json:2:3: the name \"a\" comes twice in one object");
  EXPECT_EQ(refusal("[NaN]"), "a.json:1:2: this is not JSON");
}

TEST(Json, NestsSoDeepAndNoDeeper) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(refusal(nested(kDeepestJson)), "taken");
  EXPECT_EQ(refusal(nested(kDeepestJson + 1)), "a.json:1:257: this is nested deeper than 256");
  EXPECT_EQ(refusal(std::string(1'000'000, '[')), "a.json:1:257: this is nested deeper than 256");
}

TEST(Json, OfOneLineSaysTheColumnAlone) {
  const auto said = [](std::string_view text) {
    try {
      parse_json(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(said("{\"a\": }"), "this is not JSON at column 7");
  EXPECT_EQ(said("{\"a\": 1"), "this is not JSON at column 8");
  EXPECT_EQ(said("{\n\"a\": }"), "this is not JSON at line 2, column 6");
}

}  // namespace
}  // namespace adjoint
