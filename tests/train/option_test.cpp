// An option is declared once, as a field; flags, files and saves read the declaration.
#include "train/option.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "train/resolve_config.h"

namespace adjoint {
namespace {

using nlohmann::json;

struct Fields : OptionFields {
  explicit Fields(json given) : OptionFields(std::move(given)) {}

  std::string color = one_of("color", "red", {"red", "blue"}, "of the line");
  int64_t line_width = whole("line_width", 2, {1, 9}, "in dots");
  double fade = number("fade", -1, {-1, 1}, "-1: by itself", {.least_to_train = 0});
  bool dotted = flag("dotted", "with gaps", {.of_command = true});
};

TEST(Option, AFieldHasWhatWasGivenOrItsDefault) {
  const Fields fields({{"line_width", 3}, {"dotted", true}});
  EXPECT_EQ(fields.color, "red");
  EXPECT_EQ(fields.line_width, 3);
  EXPECT_EQ(fields.fade, -1);
  EXPECT_TRUE(fields.dotted);
  EXPECT_EQ(fields.values().dump(), R"({"color":"red","dotted":true,"fade":-1,"line_width":3})");
}

TEST(Option, TheDeclarationIsTheFlag) {
  const Fields fields(json::object());
  ASSERT_EQ(fields.options().size(), 4u);
  const OptionSpec& width = option_named(fields.options(), "line_width");
  EXPECT_EQ(&width, &fields.options()[1]);
  EXPECT_EQ(width.flag(), "--line-width");
  EXPECT_EQ(width.otherwise, 2);
  EXPECT_EQ(width.parse("1e0"), 1);
  EXPECT_EQ(width.parse("wide"), "wide");
  EXPECT_EQ(error_text([&] { width.check(10); }),
            "option 'line_width': wanted a whole number from 1 to 9, found 10");
  EXPECT_EQ(error_text([&] { option_named(fields.options(), "colour"); }),
            "there is no option 'colour'; did you mean 'color'?");
  EXPECT_EQ(error_text([&] { fields.options()[2].check_trains(-1); }),
            "option 'fade': wanted a number from 0 to 1, found -1");
}

struct Lists : OptionFields {
  explicit Lists(json given) : OptionFields(std::move(given)) {}
  std::vector<std::string> from = texts("from", "where to read");
};

TEST(Option, SeveralTextsOrOne) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(Lists(json::object()).from, Texts());
  EXPECT_EQ(Lists(json{{"from", "a"}}).from, Texts({"a"}));
  EXPECT_EQ(Lists(json{{"from", {"a", "b"}}}).from, Texts({"a", "b"}));
  const OptionSpec option = Lists(json::object()).options()[0];
  EXPECT_EQ(error_text([&] { option.check({"a", "b"}); }), "");
  EXPECT_EQ(error_text([&] {
              option.check(json::array({"a", 1}));
            }),
            "option 'from': wanted a text or a list of texts, found [\"a\",1]");
  EXPECT_EQ(error_text([&] { option.check(7); }),
            "option 'from': wanted a text or a list of texts, found 7");
}

// What speaks of one command is not the next one's.
TEST(Option, ARunKeepsAllButItsCommandsOwn) {
  const json asked = {{"resume", true}, {"stop_after", 3}, {"lr", 0.5}};
  const json saved = to_json(make_config(std::span(&asked, 1)), {})["options"];
  EXPECT_EQ(saved.size(), train_options().size() + 1);  // and the model's settings
  EXPECT_EQ(saved["resume"], false);
  EXPECT_EQ(saved["stop_after"], 0);
  EXPECT_EQ(saved["lr"], 0.5);
}

}  // namespace
}  // namespace adjoint
