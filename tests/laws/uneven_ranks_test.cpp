// Widths, tables and optimizers on ranks that do not divide them. What pads the last rank's piece
// is zeros, and whatever would make something else of a zero (a function such as u log u^2, an
// update that moves a parameter whose gradient is zero) must work on the whole.
#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"
#include "laws/compare.h"
#include "laws/judge.h"
#include "models/elaborate.h"
#include "models/test_models.h"

namespace adjoint {
namespace {

// Two and three ranks divide the heads, and neither the inner width nor the tokens. FUNCTION is
// what the inner layer does with u.
constexpr const char* kModel = R"(axes layers=2 hidden=12 heads=6 inner=7 vocab=11
numbers eps=1e-5

block x[batch, seq, hidden]:
  n = layer_norm(x, eps=eps)
  x = x + linear(attention(linear(n, 3*hidden, name=qkv), heads, causal), hidden, name=proj)
  u = linear(layer_norm(x, eps=eps), inner, name=up)
  x = x + linear(FUNCTION, hidden, name=down)

model tokens[batch, seq], targets[batch, seq]:
  x = block^layers(embed(tokens, vocab, hidden, name=wte))
  logits = linear(layer_norm(x, eps=eps), vocab, bias=no, name=utter)
  loss = cross_entropy(logits, targets)
)";

Subject subject_with(const std::string& function, const std::string& optimizer = "adamw") {
  std::string text = kModel;
  text.replace(text.find("FUNCTION"), 8, function);
  const std::string file = "uneven.scheme";
  StepOptions options;
  options.eps = 1e-2;  // as in verify
  options.optimizer = optimizer;
  return {.forward =
              elaborate(parse_document(text, file), file, {.settings = {{"batch", 6}, {"seq", 8}}}),
          .options = options,
          .seeds = {1}};
}

// zero has data_parallel's bits, and without it every placement is as near to float64 as one rank
// is.
void expect_law(Judge& judge, const std::string& text) {
  SCOPED_TRACE(text);
  const Stack stack = parse_stack(text);
  const bool zero = text.find("zero") != std::string::npos;
  for (size_t i = 0; i < stack.functors.size(); ++i) {
    const StackedFunctor& f = stack.functors[i];
    if (f.by_default || (zero && f.functor.name == "data_parallel")) continue;
    const Verdict v = judge.judge(stack, i);
    EXPECT_TRUE(v.ok) << v.functor << ": " << v.tensor << " is off by " << v.error << ", allowed "
                      << v.allowed;
  }
}

std::vector<std::string> placements() {
  std::vector<std::string> all;
  for (const std::string ranks : {"2", "3"}) {
    const std::string data = "data_parallel(" + ranks + ")";
    all.push_back(data);
    for (const char* stage : {"1", "2", "3"}) all.push_back(data + " | zero(" + stage + ")");
    all.push_back("tensor_parallel(" + ranks + ")");
  }
  all.emplace_back("tensor_parallel(2, sequence=yes)");
  all.emplace_back("data_parallel(3) | zero(3) | tensor_parallel(2)");
  return all;
}

TEST(UnevenRanks, FunctionsThatAreNothingAtZero) {
  // 0 times a logarithm of 0, 0/0, and a function of 0 that is not 0.
  for (const char* function : {"u*log(u*u)", "u*u/sqrt(u*u)", "cos(u)"}) {
    SCOPED_TRACE(function);
    Judge judge(subject_with(function));
    for (const std::string& stack : placements()) expect_law(judge, stack);
  }
}

TEST(UnevenRanks, UpdatesThatMoveAZero) {
  const TempFolder folder;
  const std::pair<const char*, const char*> texts[] = {
      {"drift", "  p = p - rate*g + 0.25\n"},
      {"turn", "  p = p - rate*g + 0.25*cos(g)\n"},
      {"count", "  state n like p\n  n = n + 1\n  p = p - rate*g + 0.1*n\n"},
      {"root", "  state s like p\n  s = s + g*g\n  p = p - rate*g/(sqrt(s) + 0.01) + exp(-s)\n"},
  };
  for (const auto& [name, update] : texts) {
    SCOPED_TRACE(name);
    const std::filesystem::path file = folder / (std::string(name) + ".optimizer");
    std::ofstream(file) << "optimizer " << name << ":\n" << update;
    Judge judge(subject_with("gelu(u)", file.string()));
    for (const std::string& stack : placements()) expect_law(judge, stack);
  }
}

// Optimizers that come with Adjoint and look at more than one number of a parameter at a time.
TEST(UnevenRanks, OptimizersThatReadRows) {
  for (const char* optimizer : {"adafactor", "muon", "lion"}) {
    SCOPED_TRACE(optimizer);
    Judge judge(subject_with("gelu(u)", optimizer));
    for (const std::string& stack : placements()) expect_law(judge, stack);
  }
}

// Of a gradient that ranks add up part by part, nobody adds up the parts first: neither who wants a
// bias of one number whole, nor who wants the columns of a matrix in pieces beside its rows.
TEST(UnevenRanks, SumsOfEveryPartHaveOneOrder) {
  for (const char* optimizer : {"adamw", "adafactor"}) {
    SCOPED_TRACE(optimizer);
    Judge judge(subject_with("u*linear(u, 1, name=gate)", optimizer));
    for (const std::string ranks : {"2", "3"}) {
      for (const std::string stage : {"1", "2", "3"}) {
        const std::string text =
            "data_parallel(" + ranks + ", reduce=part) | zero(" + stage + ") | accumulate(2)";
        SCOPED_TRACE(text);
        const Stack stack = parse_stack(text);
        size_t zero = 0;
        while (stack.functors[zero].functor.name != "zero") ++zero;
        const Verdict v = judge.judge(stack, zero);
        EXPECT_TRUE(v.ok) << v.tensor << " is off by " << v.error;
      }
    }
  }
}

}  // namespace
}  // namespace adjoint
