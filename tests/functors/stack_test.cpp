// Stacks: the grammar, the user's own files, the defaults, and that text order decides nothing.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"
#include "functors/functor_named.h"
#include "functors/functor_text.h"
#include "functors/pipeline.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

std::string refusal(std::string_view stack) {
  return error_text([&] { parse_stack(stack); });
}

Scheme tiny() {
  return elaborate_preset("char", {{"layers", 3},
                                   {"hidden", 8},
                                   {"heads", 2},
                                   {"context", 4},
                                   {"vocab", 11},
                                   {"batch", 4},
                                   {"dropout", 0.1}});
}

TEST(Stack, NothingIsTheDefaults) {
  for (const char* text : {"", "  ", "\n"}) {
    const Stack stack = parse_stack(text);
    EXPECT_EQ(print(stack), "");
    EXPECT_EQ(law_of(stack), Law::kExact);
    for (const StackedFunctor& f : stack.functors) EXPECT_TRUE(f.by_default) << f.functor.name;
    EXPECT_FALSE(stack.functors.empty());
  }
}

TEST(Stack, PrintsWhatIsNotTheDefault) {
  EXPECT_EQ(print(parse_stack("bf16|checkpoint( every = 2 )")), "bf16 | checkpoint(every=2)");
  EXPECT_EQ(print(parse_stack("bf16()")), "bf16");
  EXPECT_EQ(print(parse_stack("checkpoint(sqrt)")), "checkpoint");
  EXPECT_EQ(print(parse_stack("lora(8, on=[attention, feed_forward])")),
            "lora(rank=8, on=[attention, feed_forward])");
  EXPECT_EQ(print(parse_stack("-simplify")), "-simplify");
}

TEST(Stack, TheLawIsTheWeakest) {
  EXPECT_EQ(law_of(parse_stack("checkpoint")), Law::kExact);
  EXPECT_EQ(law_of(parse_stack("checkpoint | accumulate(2)")), Law::kReassociating);
  EXPECT_EQ(law_of(parse_stack("accumulate(2) | lora")), Law::kApproximating);
}

// A law that is not about the step as it comes says what it is about.
TEST(Stack, ALawSaysAgainstWhat) {
  const auto of = [](const char* text) { return against(parse_stack(text)); };
  EXPECT_EQ(of("pipeline(4, parts=8)"), "accumulate(n=8, tied=apart)");
  EXPECT_EQ(of("pipeline(2) | ema"), "accumulate(n=2, tied=apart)");
  // Sums in another order are what these promise of the step as it comes, too.
  EXPECT_EQ(of("pipeline(2) | accumulate(2)"), "");
  EXPECT_EQ(of("data_parallel(2) | zero(2)"), "");
  EXPECT_EQ(of("checkpoint"), "");
  const Stack both = parse_stack("data_parallel(2) | zero(2)");
  for (size_t i = 0; i < both.functors.size(); ++i) {
    const bool zero = both.functors[i].functor.name == "zero";
    EXPECT_EQ(against(both, i), zero ? "data_parallel(n=2, reduce=part)" : "");
  }
  EXPECT_EQ(functor_named("zero").against_text, "data_parallel(reduce=part) when stage >= 2");
}

TEST(Stack, EmptyItems) {
  for (const char* text : {"|", "bf16 |", "| bf16", "bf16 || checkpoint", "bf16 | | lora"}) {
    EXPECT_TRUE(has(refusal(text), "found nothing")) << text;
  }
}

TEST(Stack, UnknownNamesGetTheNearest) {
  const std::string said = refusal("bf16 | chekpoint(every=2)");
  EXPECT_EQ(said, "stack:1:8: there is no functor 'chekpoint'; did you mean 'checkpoint'?");
  EXPECT_EQ(refusal("something_else"),
            "stack:1:1: there is no functor 'something_else'; adjoint functors lists them");
  EXPECT_EQ(
      refusal("bf16, lora"),
      "stack:1:1: functors are joined by '|', found 'bf16, lora'; did you mean 'bf16 | lora'?");
  EXPECT_TRUE(has(refusal("-simplyfi"), "did you mean 'simplify'?"));
  EXPECT_NE(refusal("3"), "");
  EXPECT_NE(refusal("(bf16)"), "");
}

TEST(Stack, FilesAreRenamedAndNothingElse) {
  const auto renamed = [](const std::string& file) { return "kept/" + file; };
  EXPECT_EQ(with_stack_files(
                R"(bf16 | t.functor(word="", n=2) | pipeline(2, schedule="a.schedule"))", renamed),
            R"(bf16 | kept/t.functor(word="", n=2) | pipeline(2, schedule="kept/a.schedule"))");
}

TEST(Stack, ColumnsCountInTheStack) {
  EXPECT_EQ(refusal("bf16 | lora(rank=)"), "stack:1:18: wanted a name, a number or '(', found ')'");
  EXPECT_EQ(refusal("  lora(rank=2))"), "stack:1:15: wanted the end of the line, found ')'");
  const auto begins = [](const char* stack, const char* with) {
    EXPECT_TRUE(refusal(stack).starts_with(with)) << stack << ": " << refusal(stack);
  };
  begins("bf16 | checkpoint(evry=2)", "stack:1:19: checkpoint: there is no parameter 'evry'");
  begins("bf16 | checkpoint(every=2, every=3)", "stack:1:28: 'every' is given twice");
  begins("bf16 | checkpoint(keep=[2, x])", "stack:1:28: checkpoint: 'keep' must be a number");
  begins("bf16 | checkpoint(every=[2])", "stack:1:25: checkpoint: 'every' is one value");
  begins("bf16 | tf32(1)", "stack:1:13: tf32: too many arguments");
  begins("bf16 | accumulate", "stack:1:8: accumulate: 'n' is missing");
  begins("tf32 | -bf16", "stack:1:8: 'bf16' is not on by default");
}

TEST(Stack, ArgumentsAreChecked) {
  const auto said = [&](const char* stack, const char* part) {
    EXPECT_TRUE(has(refusal(stack), part)) << stack << ": " << refusal(stack);
  };
  said("checkpoint(evry=2)", "did you mean 'every'?");
  said("checkpoint(every=2, every=3)", "'every' is given twice");
  said("checkpoint(2, every=3)", "'every' is given twice");
  said("checkpoint(1, [2], 3)", "too many arguments; it takes every=sqrt, keep=[]");
  said("tf32(1)", "too many arguments; it takes nothing");
  said("bf16(gradients=f16)", "'gradients' is one of f32, bf16, found 'f16'");
  said("checkpoint(every=0)", "must be at least 1, found 0");
  said("checkpoint(every=-2)", "must be at least 1, found -2");
  said("checkpoint(every=1.5)", "must be a whole number, found 1.5");
  said("checkpoint(every=blok)", "did you mean 'block'?");
  said("checkpoint(every=[2, 3])", "is one value, found the list [2, 3]");
  said("checkpoint(keep=[2, x])", "must be a number, found 'x'");
  said("checkpoint(every=2", "')'");
  said("checkpoint every=2", "did you mean 'checkpoint(every=2)'?");
  said("checkpoint 2, keep=[1, 2]", "did you mean 'checkpoint(2, keep=[1, 2])'?");
  said("accumulate", "'n' is missing; it takes n");
  said("accumulate(two)", "must be a number, found 'two'");
  said("offload", "'what' is missing");
  said("offload(everything)", "is one of optimizer, activations, parameters");
  said("offload(3)", "is one of optimizer, activations, parameters, found 3");
  said("lora(rank=0)", "at least 1");
  said("lora(alpha=-1)", "at least 0");
  said("lora(on=[attention, atention])", "did you mean 'attention'?");
}

TEST(Stack, DefaultsAreSwitchedOffByName) {
  const Stack with = parse_stack(""), out = parse_stack("- simplify");
  EXPECT_EQ(with.functors.size(), out.functors.size() + 1);
  EXPECT_EQ(out.off, std::vector<std::string>{"simplify"});
  EXPECT_TRUE(has(refusal("-bf16"), "'bf16' is not on by default"));
  EXPECT_TRUE(has(refusal("simplify | -simplify"), "both named and switched off"));
  // A default that is named acts as before, but counts as named and not as a default.
  const Stack named = parse_stack("simplify");
  EXPECT_EQ(named.functors.size(), with.functors.size());
  EXPECT_EQ(print(named), "simplify");
}

// A functor may be named twice with different arguments; with the same arguments it is a mistake.
TEST(Stack, AFunctorNamedTwice) {
  EXPECT_TRUE(has(refusal("bf16 | checkpoint | bf16"), "'bf16' is there twice"));
  EXPECT_TRUE(has(refusal("checkpoint(sqrt) | checkpoint"), "'checkpoint' is there twice"));
  EXPECT_EQ(print(parse_stack("offload(parameters) | offload(activations)")),
            "offload(what=activations) | offload(what=parameters)");
  // Two that disagree about an object are refused, with the object.
  const std::string said = error_text(
      [&] { build_step(tiny(), parse_stack("checkpoint(every=1) | checkpoint(every=2)"), {}); });
  EXPECT_TRUE(has(said, "leave one of them out")) << said;
  EXPECT_TRUE(has(said, "block[0]")) << said;
}

TEST(Stack, AnyTextOrderIsTheSameStep) {
  std::vector<std::string> items = {"checkpoint(every=2)", "freeze(norm)", "lora(rank=2)",
                                    "accumulate(2)"};
  std::sort(items.begin(), items.end());
  std::string first;
  do {
    std::string text = items[0];
    for (size_t i = 1; i < items.size(); ++i) text += " | " + items[i];
    const std::string step = print(training_step(tiny(), {.stack = text}));
    if (first.empty()) first = step;
    ASSERT_EQ(step, first) << text;
  } while (std::next_permutation(items.begin(), items.end()));
}

class StackFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, std::string_view text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  }
  TempFolder folder_;
};

constexpr std::string_view kIdea = R"(# Keeps every k-th state, and says so.
functor my_idea(k = 2):
  law exact
  object x_l in chain -> kept when l mod k == 0
)";

TEST_F(StackFiles, AUsersOwnFunctor) {
  const std::string path = write("ideas/my_idea.functor", kIdea);
  const Stack stack = parse_stack(path + "(k=3) | bf16");
  EXPECT_EQ(print(stack), "bf16 | my_idea(k=3)");
  const BuiltStep step = build_step(tiny(), parse_stack(path + "(k=3)"), {});
  ASSERT_EQ(step.applied[0].name, "my_idea(k=3)");
  EXPECT_EQ(step.applied[0].matches, 2) << "x_0 and x_3";
  EXPECT_EQ(step.applied[0].counts.at("kept"), 2);
  EXPECT_EQ(build_step(tiny(), parse_stack(path), {}).applied[0].matches, 2) << "x_0 and x_2";
  EXPECT_TRUE(has(refusal(path + "(kk=3)"), "my_idea: there is no parameter 'kk'"));
  EXPECT_TRUE(has(refusal(path + " | " + path), "'my_idea' is there twice"));
}

TEST_F(StackFiles, AMissingOrWrongFile) {
  const std::string absent = (folder_ / "absent.functor").string();
  EXPECT_TRUE(has(refusal(absent + "(k=3)"), "absent.functor: there is no such file"));
  const std::string wrong = write("wrong.functor", "functor wrong:\n  law exakt\n");
  EXPECT_TRUE(has(refusal("bf16 | " + wrong), "wrong.functor:2:7: ")) << refusal(wrong);
}

TEST_F(StackFiles, FilesOfAStackAreRenamedAndNothingElse) {
  const auto renamed = [](const std::string& file) { return "functors/[" + file + "]"; };
  EXPECT_EQ(with_stack_files("bf16|a/b.functor( k = 3 ) | -simplify|x(1).functor", renamed),
            "bf16 | functors/[a/b.functor]( k = 3 ) | -simplify | functors/[x(1).functor]");
  EXPECT_EQ(with_stack_files("", renamed), "");
  // What a functor is told in quotes may have bars and brackets.
  EXPECT_EQ(with_stack_files("pipeline(2, schedule=\"a|b).schedule\") | x(t=\"text\")", renamed),
            "pipeline(2, schedule=\"" + renamed("a|b).schedule") + "\") | x(t=\"text\")");
}

// The text of a functor in a file, which a stack then names.
class OwnFunctor {
 public:
  explicit OwnFunctor(const std::string& text) : file_(folder_ / "own.functor") {
    write_file_atomically(file_, text);
  }
  std::string name() const { return file_.string(); }

 private:
  TempFolder folder_;
  std::filesystem::path file_;
};

TEST(StackOfOthers, StandsForThem) {
  EXPECT_EQ(print(parse_stack("qlora(rank=8, group=32)")),
            print(parse_stack("quantize(nf4, group=32) | lora(8, 16) | bf16 | checkpoint(block)")));
  EXPECT_EQ(law_of(parse_stack("qlora")), Law::kApproximating);
  EXPECT_EQ(functor_named("qlora").law, Law::kApproximating) << "the weakest of its parts";
  for (const StackedFunctor& f : parse_stack("qlora | accumulate(2)").functors) {
    const bool own = f.by_default || f.functor.name == "accumulate";
    EXPECT_EQ(f.within, own ? std::vector<std::string>{} : std::vector<std::string>{"qlora"});
  }
  const Scheme plain = tiny();
  EXPECT_EQ(print(build_step(plain, parse_stack("qlora(rank=2, group=8)"), {}).scheme),
            print(build_step(plain,
                             parse_stack("checkpoint(block) | bf16 | lora(2, 4) | "
                                         "quantize(nf4, group=8)"),
                             {})
                      .scheme));
}

TEST(StackOfOthers, FromAFileWithEveryKindOfArgument) {
  const OwnFunctor own(R"(# Mine.
functor mine(k, on = attention: several | attention | feed_forward, keep = [1]: list) =
  lora(2*k - 1, on=on)   # numbers are computed
  | checkpoint(keep=keep) | -simplify |
  offload(optimizer)
)");
  EXPECT_EQ(print(parse_stack(own.name() + "(k=2, keep=[0, 2])")),
            print(parse_stack("lora(3, on=attention) | checkpoint(keep=[0, 2]) | "
                              "offload(optimizer) | -simplify")));
  EXPECT_EQ(print(parse_stack(own.name() + "(1, [attention, feed_forward])")),
            print(parse_stack("lora(1, on=[attention, feed_forward]) | checkpoint(keep=[1]) | "
                              "offload(optimizer) | -simplify")));
  EXPECT_EQ(print(parse_stack(own.name() + "(1) | -simplify")),
            print(parse_stack(own.name() + "(1)")));
}

TEST(StackOfOthers, StacksNest) {
  const OwnFunctor own("functor mine(r = 4) = qlora(rank=r, group=8) | accumulate(2)\n");
  const Stack stack = parse_stack(own.name());
  EXPECT_EQ(print(stack), print(parse_stack("qlora(rank=4, group=8) | accumulate(2)")));
  for (const StackedFunctor& f : stack.functors) {
    if (f.functor.name == "lora") {
      EXPECT_EQ(f.within, (std::vector<std::string>{"mine", "qlora"}));
    }
  }
  // What goes wrong in it names all of them.
  const OwnFunctor deep("functor mine = accumulate(2) | qlora(group=7)\n");
  const std::string said = error_text([&] { build_step(tiny(), parse_stack(deep.name()), {}); });
  EXPECT_TRUE(said.starts_with("mine: qlora: quantize: groups of 7 do not divide")) << said;
}

TEST(StackOfOthers, LawsAreNoStrongerThanThoseOfTheParts) {
  const OwnFunctor weaker("functor mine = checkpoint\n  law reassociating\n");
  EXPECT_EQ(refusal(weaker.name()), "");
  const OwnFunctor stronger("functor mine = checkpoint | bf16\n  law exact\n");
  EXPECT_EQ(refusal(stronger.name()), stronger.name() +
                                          ":1:16: mine: says that it is exact, and its parts are "
                                          "approximating");
}

TEST(StackOfOthers, EveryMistakeNamesItsPlaceAndTheFunctors) {
  struct Mistake {
    std::string text, place, said;
  };
  const std::vector<Mistake> mistakes = {
      {"functor f =\n", "2:1", "wanted an indented line"},
      {"functor f = \nbf16\n", "2:1", "wanted an indented line"},
      {"functor f = bf16 |\n", "2:1", "wanted an indented line"},
      {"functor f = bf16 | | tf32\n", "1:20", "wanted a functor, found '|'"},
      {"functor f = bf16 tf32\n", "1:18", "wanted '|' and a functor, or a law, found 'tf32'"},
      {"functor f = bf16\n  object input -> host\n", "2:3", "'|' and a functor, or a law"},
      {"functor f = bf16\n  law exactly\n", "2:7", "wanted exact"},
      {"functor f = f | bf16\n", "1:13", "'f' cannot have itself in its stack"},
      {"functor f = bf16 | own.functor(2)\n", "1:20", "found a file"},
      {"functor f = bf16 + tf32\n", "1:13", "wanted a functor, found 'bf16 + tf32'"},
      {"functor f = bf16 | -simplify(2)\n", "1:20", "switched off has no arguments"},
      {"functor f = bf16 | -bf16\n", "1:20", "f: 'bf16' is not on by default"},
      {"functor f = bf61\n", "1:13", "f: there is no functor 'bf61'; did you mean 'bf16'?"},
      {"functor f = bf16 | checkpoint(evry=2)\n", "1:20", "f: checkpoint: there is no parameter"},
      {"functor f(k = 0: number) = bf16 | accumulate(k)\n", "1:35",
       "f: accumulate: 'n' must be at least 1, found 0"},
      {"functor f(k = 2) = accumulate(m)\n", "1:20",
       "f: accumulate: 'n' must be a number, found 'm'"},
      {"functor f(k = 2) = accumulate(m + 1)\n", "1:20", "there is no number 'm' here"},
  };
  for (const Mistake& m : mistakes) {
    const OwnFunctor own(m.text);
    const std::string said = refusal(own.name());
    EXPECT_TRUE(said.starts_with(own.name() + ":" + m.place + ": ")) << m.text << said;
    EXPECT_TRUE(has(said, m.said)) << m.text << said;
  }
}

TEST(StackOfOthers, WhatIsThereTwiceIsRefusedAsEverywhere) {
  EXPECT_EQ(refusal("qlora | bf16"), "stack: 'bf16' is there twice (in qlora)");
  const OwnFunctor own("functor mine = bf16 | accumulate(2)\n");
  EXPECT_EQ(refusal("qlora | " + own.name()),
            "stack: 'bf16' is there twice (in qlora, and in mine)");
  const OwnFunctor off("functor mine = bf16 | -fuse\n");
  EXPECT_EQ(refusal("fuse | " + off.name()), "stack: 'fuse' is both named and switched off");
  const std::string twice =
      error_text([&] { build_step(tiny(), parse_stack("qlora(2, group=8) | lora(rank=3)"), {}); });
  EXPECT_TRUE(
      has(twice, "has been rewritten by another lora of this stack already; name lora once"))
      << twice;
}

}  // namespace
}  // namespace adjoint
