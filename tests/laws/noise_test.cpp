// Where plain noise is as large as what is measured (deep chains, tiny widths), right functors must
// not be accused; and wrong steps must still be caught. ADJOINT_DRAWS=500 draws more than always.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "base/philox.h"
#include "base/text.h"
#include "laws/composition.h"
#include "laws/planted.h"
#include "models/small_models.h"
#include "models/test_models.h"

namespace adjoint {
namespace {

int wanted_draws(int otherwise) {
  const char* said = std::getenv("ADJOINT_DRAWS");
  return said ? std::atoi(said) : otherwise;
}

// A model that is deep and thin, and a stack; every functor of it is right.
class Drawer {
 public:
  explicit Drawer(int number) : stream_{random_key(7, "noise"), static_cast<uint64_t>(number)} {}

  Subject subject(std::string& said) {
    const int64_t which = below(4);
    const int64_t width =
        std::vector<int64_t>{1, 1, 2, 3, 4, 8}[which == 1 ? 2 + below(4) : below(6)];
    const int64_t depth = 1 + below(below(2) ? 40 : 8);
    std::map<std::string, double> settings = {
        {"batch", 1 + below(4)}, {"seq", 1 + below(6)}, {"dropout", below(2) ? 0.1 : 0}};
    if (which == 0)
      settings.insert(
          {{"hidden", width}, {"heads", 1}, {"vocab", 5 + below(20)}, {"layers", depth}});
    if (which == 1)
      settings.insert({{"hidden", 2 * (width / 2)},
                       {"heads", 1},
                       {"kv_heads", 1},
                       {"ffn", 1 + below(6)},
                       {"vocab", 5 + below(20)},
                       {"layers", depth}});
    if (which == 2)
      settings.insert({{"hidden", width}, {"heads", 1}, {"ffn", 1 + below(6)}, {"layers", depth}});
    if (which == 3)
      settings.insert(
          {{"keel", width}, {"spokes", 1}, {"bilge", 1 + below(6)}, {"fathoms", 1 + depth / 2}});
    const char* const names[] = {"char", "llama-tiny", "hybrid", "odd"};
    said = names[which];
    for (const auto& [name, value] : settings) said += " " + name + "=" + shortest(value);
    StepOptions options;
    options.eps = 1e-2;
    return {.forward = which < 2 ? elaborate_preset(said.substr(0, said.find(' ')), settings)
                                 : test_model(said.substr(0, said.find(' ')), settings),
            .options = options};
  }

  std::string stack() {
    const std::vector<std::string> items = matrix_items();
    std::vector<std::string> stack;
    for (int64_t n = below(4); n > 0; --n) {
      const std::string& item = items[below(items.size())];
      if (!std::count(stack.begin(), stack.end(), item)) stack.push_back(item);
    }
    return join(stack, " | ");
  }

 private:
  int64_t below(int64_t n) { return stream_.bits(next_++) % n; }
  RandomStream stream_;
  uint64_t next_ = 0;
};

// Draws 12 and 32 were accused when one plain run was all that a run was compared with.
TEST(Noise, RightFunctorsAreNotAccused) {
  std::vector<int> numbers = {0, 1, 12, 32};
  for (int number = 2; number < wanted_draws(0); ++number) numbers.push_back(number);
  int judged = 0, accused = 0, refused = 0;
  const auto judge_all = [&](const Subject& subject, const std::string& what, const Stack& stack) {
    Judge judge(subject);
    judge.built(stack);
    for (size_t i = 0; i < stack.functors.size(); ++i) {
      const Verdict v = judge.judge(stack, i);
      ++judged;
      accused += !v.ok;
      EXPECT_TRUE(v.ok) << what << (subject.evaluation ? ", evaluated: " : ": ") << v.functor
                        << " (" << name(v.law) << ") is off by " << v.error << " at " << v.tensor
                        << " where " << v.allowed << " is allowed";
    }
  };
  for (const int number : numbers) {
    std::string model;
    Drawer drawer(number);
    try {
      Subject subject = drawer.subject(model);
      const std::string text = drawer.stack();
      const std::string what = join_parts("draw ", number, ": ", model, ", '", text, "'");
      judge_all(subject, what, parse_stack(text));
      subject.evaluation = true;
      subject.steps = 1;
      judge_all(subject, what, parse_stack(text));
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(judged, 10);
  std::cout << accused << " accused of " << judged << " judged, " << refused << " stacks refused\n";
}

// ---- mistakes that somebody could make, each at one place

using Change = std::function<bool(Scheme&, Morphism&)>;  // whether it did

// The first `most` morphisms that the change takes.
Apply changed(Change change, int64_t most = 1) {
  return [=](const Scheme& before, Application& application) {
    Scheme after = before;
    for (size_t i = 0; i < after.morphisms.size() && application.matches < most; ++i) {
      Morphism m = after.morphisms[i];
      if (!change(after, m)) continue;
      after.morphisms[i] = std::move(m);
      ++application.matches;
    }
    return after;
  };
}

// Rounded to bfloat16 where nobody says so.
Apply rounded(std::string path) {
  Body body;
  body.outputs = {{.node = round_to(input(body, 0), Dtype::kBF16).node, .dtype = Dtype::kF32}};
  return behind(std::move(path), "map", {{"body", print(body)}});
}

// One of two terms of a gradient.
Apply one_term_of(std::string path) {
  return changed([=](Scheme& s, Morphism& m) {
    if (m.op != "add" || to_string(s[m.outputs[0]].source) != path) return false;
    m.op = "scale";
    m.inputs.pop_back();
    m.attrs = {{"by", 1.0}, {"plus", 0.0}};
    return true;
  });
}

// What an earlier part of the batch left behind is overwritten instead of added to.
Apply parts_forgotten() {
  return changed([](Scheme&, Morphism& m) {
    if (m.op != "contract" || m.inputs.size() != 3) return false;
    m.inputs.pop_back();
    return true;
  });
}

// The backward of block 1 reads what block 0 made.
Apply stale() {
  return changed([](Scheme& s, Morphism& m) {
    if (m.phase != Phase::kBackward) return false;
    for (Value& in : m.inputs) {
      std::string path = s[in].source.path;
      if (!path.starts_with("block[1].") || !s[in].source.facet.empty()) continue;
      if (s[in].role == Role::kParameter) continue;
      path[6] = '0';
      for (Value v = 0; v < in; ++v) {
        if (s[v].source != Source{path} || !(s[v].type == s[in].type)) continue;
        in = v;
        return true;
      }
    }
    return false;
  });
}

Apply number_changed(std::string op, std::string attribute, double by) {
  return changed([=](Scheme&, Morphism& m) {
    const auto found = m.op == op ? m.attrs.find(attribute) : m.attrs.end();
    if (found == m.attrs.end()) return false;
    std::get<double>(found->second) *= by;
    return true;
  });
}

struct Mistake {
  std::string what, stack;
  FunctorPhase phase;
  Apply apply;
};

TEST(Noise, WrongStepsAreCaught) {
  using P = FunctorPhase;
  const Mistake mistakes[] = {
      {"a gradient times 1.01", "", P::kStepRules, scaled("block[1].up.weight:grad", 1.01)},
      {"a gradient times 1.0001", "", P::kStepRules, scaled("block[1].up.weight:grad", 1.0001)},
      {"a bias's gradient times 1.01", "", P::kStepRules, scaled("block[0].down.bias:grad", 1.01)},
      {"an activation times 1.0001", "", P::kExact, scaled("block[0].down", 1.0001)},
      {"a part of a tied gradient", "", P::kStepRules, one_term_of("wte.weight:grad")},
      {"a rounded activation", "-fuse_epilogue", P::kExact, rounded("block[0].up")},
      {"a rounded gradient", "", P::kStepRules, rounded("block[1].up.weight:grad")},
      {"a part of the batch", "accumulate(2)", P::kExact, parts_forgotten()},
      {"a stale recomputation", "checkpoint(every=1)", P::kExact, stale()},
      {"a stale activation", "", P::kStepRules, stale()},
      {"another beta", "", P::kStepRules, number_changed("adamw", "beta1", 1.01)},
      {"another decay", "", P::kStepRules, number_changed("adamw", "decay", 1.5)},
  };
  int caught = 0;
  for (const Mistake& m : mistakes) {
    Judge judge(small_gpt2({1}));
    const Stack stack =
        with_planted({planted("wrong", Law::kReassociating, m.phase, m.apply)}, m.stack);
    const Verdict verdict = judge.judge(stack, 0);
    EXPECT_FALSE(verdict.ok) << m.what;
    caught += !verdict.ok;
  }
  EXPECT_EQ(caught, static_cast<int>(std::size(mistakes)));
}

// In a chain as deep and thin as those above a mistake of the size of the gradient is one.
TEST(Noise, WrongStepsAreCaughtInDeepThinChains) {
  for (const int64_t width : {2, 4}) {
    Judge judge(small_subject(
        "char", {{"layers", 20}, {"hidden", width}, {"heads", 1}, {"vocab", 11}}, {1}));
    for (const double by : {0.5, 2.0}) {
      for (const char* path : {"block[2].up.weight:grad", "block[9].proj.weight:grad"}) {
        const Functor wrong = planted(shortest(by) + path, Law::kReassociating,
                                      FunctorPhase::kStepRules, scaled(path, by));
        const Stack stack = with_planted({wrong});
        EXPECT_FALSE(judge.judge(stack, 0).ok) << path << " times " << by << ", width " << width;
      }
    }
  }
}

}  // namespace
}  // namespace adjoint
