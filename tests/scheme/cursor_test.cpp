#include "scheme/cursor.h"

#include <gtest/gtest.h>

#include "base/error_text.h"

namespace adjoint {
namespace {

template <class Read>
std::string said(const char* text, const Read& read) {
  return error_text([&] {
    Cursor in(text, "a.scheme");
    read(in);
  });
}

TEST(Cursor, ReadsTokensAndKeepsItsPlace) {
  Cursor in("  name_1 = -2.5e1 # comment\n\n  \"a # b\"  [x]", "a.scheme");
  EXPECT_TRUE(in.at_name());
  EXPECT_EQ(in.take_name("a name"), "name_1");
  EXPECT_TRUE(in.accept("="));
  EXPECT_FALSE(in.accept("="));
  EXPECT_EQ(in.take_number("a number"), -25.0);
  EXPECT_TRUE(in.at_line_end());
  EXPECT_EQ(in.position().line, 1);
  in.skip_blank_lines();
  EXPECT_EQ(in.position().line, 3);
  EXPECT_EQ(in.position().column, 3);
  EXPECT_EQ(in.take_text(), "a # b");
  EXPECT_TRUE(in.accept("["));
  EXPECT_EQ(in.take_run("]", "a run"), "x]");
  EXPECT_TRUE(in.at_end());
}

TEST(Cursor, NewlinesAreBlankInsideBracketsOnly) {
  Cursor in("a\nb", "a.scheme");
  in.take_name("a name");
  EXPECT_TRUE(in.at_line_end());
  in.open_bracket();
  EXPECT_TRUE(in.at_name());
  EXPECT_EQ(in.take_name("a name"), "b");
}

TEST(Cursor, AWordEndsWhereItsLettersEnd) {
  Cursor in("axeswide axes", "a.scheme");
  EXPECT_FALSE(in.accept_word("axes"));
  EXPECT_EQ(in.take_name("a name"), "axeswide");
  EXPECT_TRUE(in.accept_word("axes"));
}

TEST(Cursor, ErrorsNameThePlaceWhatWasWantedAndWhatWasFound) {
  const auto name = [](Cursor& in) { in.take_name("the name of a box"); };
  EXPECT_EQ(said("  12", name), "a.scheme:1:3: wanted the name of a box, found '12'");
  EXPECT_EQ(said("", name), "a.scheme:1:1: wanted the name of a box, found the end of the text");
  EXPECT_EQ(said(" \n x", name),
            "a.scheme:1:2: wanted the name of a box, found the end of the line");
  EXPECT_EQ(said("+x", name), "a.scheme:1:1: wanted the name of a box, found '+'");
  EXPECT_EQ(said("\xc3\xa9t\xc3\xa9", name),
            "a.scheme:1:1: wanted the name of a box, found '\xc3\xa9'");
  EXPECT_EQ(said("x", [](Cursor& in) { in.expect("=", "after a name"); }),
            "a.scheme:1:1: wanted '=' after a name, found 'x'");
  EXPECT_EQ(said("\n\n  x y",
                 [](Cursor& in) {
                   in.skip_blank_lines();
                   in.take_name("a name");
                   in.expect_line_end();
                 }),
            "a.scheme:3:5: wanted the end of the line, found 'y'");
  EXPECT_EQ(said("\"ab\n\"", [](Cursor& in) { in.take_text(); }),
            "a.scheme:1:4: wanted '\"' to end the text, found the end of the line");
}

TEST(Cursor, Numbers) {
  const auto number = [](const char* text) { return Cursor(text, "a").take_number("a number"); };
  EXPECT_EQ(number("1"), 1.0);
  EXPECT_EQ(number(" .5"), 0.5);
  EXPECT_EQ(number("-1e-5"), -1e-5);
  EXPECT_EQ(Cursor("-9223372036854775808", "a").take_integer("an integer"), INT64_MIN);
  for (const char* text : {"", "x", "-", ".", "inf", "nan", "1e999", "+1"}) {
    EXPECT_TRUE(has(error_text([&] { number(text); }), "a:1:1: wanted a number")) << text;
  }
  for (const char* text : {"", "x", "-", "9223372036854775808"}) {
    EXPECT_TRUE(has(error_text([&] { Cursor(text, "a").take_integer("an integer"); }),
                    "a:1:1: wanted an integer"))
        << text;
  }
}

TEST(Cursor, PlacesDoNotMakeThingsDiffer) { EXPECT_EQ((Position{1, 2}), (Position{3, 4})); }

}  // namespace
}  // namespace adjoint
