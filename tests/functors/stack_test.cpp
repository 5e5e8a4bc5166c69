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

TEST(Stack, EmptyItems) {
  for (const char* text : {"|", "bf16 |", "| bf16", "bf16 || checkpoint", "bf16 | | lora"}) {
    EXPECT_TRUE(has(refusal(text), "found nothing")) << text;
  }
}

TEST(Stack, UnknownNamesGetTheNearest) {
  const std::string said = refusal("bf16 | chekpoint(every=2)");
  EXPECT_TRUE(has(said, "no functor 'chekpoint'")) << said;
  EXPECT_TRUE(has(said, "did you mean 'checkpoint'?")) << said;
  EXPECT_TRUE(has(said, "lora")) << "the list of all: " << said;
  EXPECT_TRUE(has(refusal("-simplyfi"), "did you mean 'simplify'?"));
  EXPECT_NE(refusal("3"), "");
  EXPECT_NE(refusal("(bf16)"), "");
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
  said("checkpoint every=2", "no functor 'checkpoint every=2'");
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
  EXPECT_EQ(with_functor_files("bf16|a/b.functor( k = 3 ) | -simplify|x(1).functor", renamed),
            "bf16 | functors/[a/b.functor]( k = 3 ) | -simplify | functors/[x(1).functor]");
  EXPECT_EQ(with_functor_files("", renamed), "");
}

}  // namespace
}  // namespace adjoint
