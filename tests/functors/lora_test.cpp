// One lora for every model (T7), its memory (T5), and its function: W + (alpha/rank) B A.
#include <gtest/gtest.h>

#include <set>

#include "base/error_text.h"
#include "functors/evaluation.h"
#include "functors/functor_named.h"
#include "functors/pipeline.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "models/test_models.h"
#include "run/parameters.h"

namespace adjoint {
namespace {

using Counts = std::map<std::string, int64_t>;
using Names = std::set<std::string>;

Scheme gpt2(double dropout = 0) {
  return elaborate_preset("char", {{"layers", 2},
                                   {"hidden", 12},
                                   {"heads", 2},
                                   {"context", 5},
                                   {"vocab", 11},
                                   {"batch", 2},
                                   {"dropout", dropout}});
}
Scheme llama() { return elaborate_preset("llama-tiny", {{"context", 5}, {"batch", 2}}); }

// Names that mislead, and both halves side by side: roles are in the use alone.
constexpr std::string_view kOdd = R"(axes depth=2 wide=12 eyes=3 context=6 words=13
wobble x[batch, seq, wide]:
  s = layer_norm(x, name=qkv_proj)
  down = attention(linear(s, 3*wide, name=mlp), eyes, causal)
  up = linear(gelu(linear(s, 5*wide, name=o_proj)), wide, name=embed_tokens)
  x = x + linear(down, wide, name=lm_head) + up
model tokens[batch, seq], targets[batch, seq]:
  x = wobble^depth(embed(tokens, words, wide, name=norm))
  loss = cross_entropy(linear(x, words, name=block), targets)
)";

Counts counts(const Scheme& forward, const std::string& item = "lora") {
  const BuiltStep built = build_step(forward, parse_stack(item), {});
  Counts found = built.applied[0].counts;
  EXPECT_TRUE(built.applied[0].name.starts_with("lora"));
  int64_t uses = 0;
  for (const auto& [use, count] : found) uses += use == "frozen" ? 0 : count;
  EXPECT_EQ(built.applied[0].matches, uses);
  found.erase("frozen");
  return found;
}

TEST(Lora, FindsTheSameRolesInEveryModel) {
  EXPECT_EQ(counts(gpt2()),
            (Counts{{"attention_in", 2}, {"attention_out", 2}, {"feed_forward", 4}}));
  EXPECT_EQ(counts(llama()),
            (Counts{{"attention_in", 6}, {"attention_out", 2}, {"feed_forward", 6}}));
  EXPECT_EQ(counts(test_model("qwen")),
            (Counts{{"attention_in", 6}, {"attention_out", 2}, {"feed_forward", 6}}));
  // Two stages of two blocks of four maps, and one map between stages.
  EXPECT_EQ(counts(test_model("odd")),
            (Counts{{"attention_in", 4}, {"attention_out", 4}, {"feed_forward", 10}}));
  EXPECT_EQ(counts(elaborate_text(kOdd)),
            (Counts{{"attention_in", 2}, {"attention_out", 2}, {"feed_forward", 4}}));
}

TEST(Lora, OnSomeRolesOnly) {
  for (const Scheme& forward : {test_model("qwen"), test_model("odd"), elaborate_text(kOdd)}) {
    const Counts all = counts(forward);
    EXPECT_EQ(counts(forward, "lora(on=attention_out)"),
              (Counts{{"attention_out", all.at("attention_out")}}));
    EXPECT_EQ(counts(forward, "lora(on=feed_forward)"),
              (Counts{{"feed_forward", all.at("feed_forward")}}));
    Counts attention = all;
    attention.erase("feed_forward");
    EXPECT_EQ(counts(forward, "lora(on=attention)"), attention);
    EXPECT_EQ(counts(forward, "lora(on=[attention_in, attention_out])"), attention);
  }
}

// In another phase of a run the same places are adapted: parameters are saved by path.
TEST(Lora, EvaluationAndSamplingHaveTheSameParameters) {
  for (const Scheme& forward : {gpt2(0.1), llama(), elaborate_text(kOdd)}) {
    const Stack stack = parse_stack("lora(rank=2)");
    const auto parameters = [](const Scheme& s) {
      const std::vector<std::string> paths = paths_of(s, Role::kParameter);
      return Names(paths.begin(), paths.end());
    };
    const Names trained = parameters(build_step(forward, stack, {}).scheme);
    EXPECT_EQ(parameters(evaluation_scheme(forward, stack, {})), trained);
    EXPECT_EQ(parameters(evaluation_scheme(logits_of(forward), stack, {})), trained);
  }
}

TEST(Lora, NoMatchIsAnErrorThatListsWhatThereIs) {
  // Linear maps by parameters there are, but no chain.
  const Scheme flat = elaborate_text(R"(axes hidden=8 context=4 vocab=11
model tokens[batch, seq], targets[batch, seq]:
  loss = cross_entropy(linear(gelu(linear(embed(tokens, vocab), hidden)), vocab), targets)
)");
  std::string said = error_text([&] { counts(flat); });
  for (const char* part : {"lora: no 'linear'", "no chain of repeated blocks", "5 parameter",
                           "1 use as readout", "1 use as embedding"}) {
    EXPECT_TRUE(has(said, part)) << part << " in: " << said;
  }
  // A chain, but without attention.
  const Scheme mixer = elaborate_text(R"(axes hidden=8 context=4 vocab=11
block x[batch, seq, hidden]:
  x = x + gelu(linear(rms_norm(x), hidden))
model tokens[batch, seq], targets[batch, seq]:
  loss = cross_entropy(linear(block^3(embed(tokens, vocab)), vocab), targets)
)");
  EXPECT_EQ(counts(mixer), (Counts{{"feed_forward", 3}}));
  said = error_text([&] { counts(mixer, "lora(on=attention)"); });
  EXPECT_TRUE(has(said, "a chain of 3 blocks")) << said;
  EXPECT_TRUE(has(said, "3 uses as feed_forward")) << said;
}

// The whole change as text: the adapter has the path of the use that it is added to.
TEST(Lora, AsText) {
  const std::string before = R"(scheme:
  input %0 x: f32[b=2, i=3]
  input %1 targets: i32[b=2]
  parameter %2 a.weight: f32[i=3, i=3]
  parameter %3 b.weight: f32[i=3, i=3]
  %4 a: f32[b=2, i=3] = linear(%0, %2) @a
  %5 u: f32[b=2, i=3] = gelu(%4) @u
  %6 b: f32[b=2, i=3] = linear(%5, %3) @b
  %7 v: f32[b=2, i=3] = gelu(%6) @v
  %8 loss: f32[] metric, %9 loss.count: f32[] metric, %10 loss.lse: f32[b=2] = cross_entropy(%7, %1) {ignore=-1} @loss
  return %8, %9
)";
  EXPECT_EQ(applied("lora(rank=2, alpha=3)", before), R"(scheme:
  input %0 x: f32[b=2, i=3]
  input %1 targets: i32[b=2]
  parameter %2 a.weight: f32[i=3, i=3] frozen
  parameter %3 b.weight: f32[i=3, i=3] frozen
  parameter %11 a.lora_a.weight: f32[rank=2, i=3] init=uniform(0.5773502691896258)
  parameter %13 a.lora_b.weight: f32[i=3, rank=2] init=zeros
  parameter %17 b.lora_a.weight: f32[rank=2, i=3] init=uniform(0.5773502691896258)
  parameter %19 b.lora_b.weight: f32[i=3, rank=2] init=zeros
  %4 a: f32[b=2, i=3] = linear(%0, %2) @a
  %12 a.lora_a: f32[b=2, rank=2] = linear(%0, %11) @a.lora_a
  %14 a.lora_b: f32[b=2, i=3] = linear(%12, %13) @a.lora_b
  %15 a.scale#1: f32[b=2, i=3] = scale(%14) {by=1.5, plus=0.0} @a.scale#1
  %16 a.add#1: f32[b=2, i=3] = add(%4, %15) @a.add#1
  %5 u: f32[b=2, i=3] = gelu(%16) @u
  %6 b: f32[b=2, i=3] = linear(%5, %3) @b
  %18 b.lora_a: f32[b=2, rank=2] = linear(%5, %17) @b.lora_a
  %20 b.lora_b: f32[b=2, i=3] = linear(%18, %19) @b.lora_b
  %21 b.scale#1: f32[b=2, i=3] = scale(%20) {by=1.5, plus=0.0} @b.scale#1
  %22 b.add#1: f32[b=2, i=3] = add(%6, %21) @b.add#1
  %7 v: f32[b=2, i=3] = gelu(%22) @v
  %8 loss: f32[] metric, %9 loss.count: f32[] metric, %10 loss.lse: f32[b=2] = cross_entropy(%7, %1) {ignore=-1} @loss
  return %8, %9
)");
}

// Two ranks for two roles: neither touches the other's adapters, and all of them are trained.
TEST(Lora, TwiceOnDifferentRoles) {
  const Stack stack = parse_stack("lora(rank=2, on=attention) | lora(rank=3, on=feed_forward)");
  const BuiltStep built = build_step(gpt2(), stack, {});
  EXPECT_EQ(built.applied[0].matches, 4);
  EXPECT_EQ(built.applied[1].matches, 4);
  int adapters = 0;
  for (const Value in : built.scheme.inputs) {
    const Object& o = built.scheme[in];
    if (o.role != Role::kParameter) continue;
    const bool adapter = has(o.source.path, ".lora_");
    EXPECT_EQ(o.frozen, !adapter) << o.source.path;
    adapters += adapter;
    if (has(o.source.path, ".lora_a.")) {
      const bool attends = has(o.source.path, ".qkv.") || has(o.source.path, ".proj.");
      EXPECT_EQ(o.type.dim(0), attends ? 2 : 3) << o.source.path;
    }
  }
  EXPECT_EQ(adapters, 16);
  const std::string said = error_text(
      [&] { build_step(gpt2(), parse_stack("lora(rank=2) | lora(rank=3, on=attention)"), {}); });
  EXPECT_TRUE(
      has(said, "lora: 'block[0].qkv' has been rewritten by another lora of this stack already"))
      << said;
}

Stack stack_of(const std::string& text, bool defaults) {
  Stack stack = parse_stack(text);
  std::erase_if(stack.functors, [&](const StackedFunctor& f) { return f.by_default && !defaults; });
  return stack;
}

// What is trained, and nothing else, has gradients and moments.
void expect_adapters_only(const Scheme& forward, bool defaults) {
  const Scheme step = build_step(forward, stack_of("lora(rank=3)", defaults), {}).scheme;
  const std::vector<std::string> plain = paths_of(forward, Role::kParameter);
  const Names base(plain.begin(), plain.end());
  Names adapters;
  int64_t adapter_bytes = 0, state_bytes = 0, gradient_bytes = 0;
  for (const Value in : step.inputs) {
    const Object& o = step[in];
    if (o.role == Role::kState && o.type.rank() > 0) state_bytes += o.type.bytes().count;
    if (o.role != Role::kParameter || base.count(o.source.path)) continue;
    adapters.insert(o.source.path);
    adapter_bytes += o.type.bytes().count;
  }
  std::set<Value> gradients;
  for (const Morphism& m : step.morphisms) {
    for (const Value in : m.inputs) {
      if (m.phase == Phase::kUpdate && step[in].role == Role::kGradient) gradients.insert(in);
    }
  }
  for (const Value g : gradients) gradient_bytes += step[g].type.bytes().count;
  EXPECT_GT(adapter_bytes, 0);
  EXPECT_EQ(gradient_bytes, adapter_bytes);
  EXPECT_EQ(state_bytes, 2 * adapter_bytes);
  for (const Morphism& m : step.morphisms) {
    for (const Value out : m.outputs) {
      const Object& o = step[out];
      if (o.role != Role::kGradient) continue;
      EXPECT_FALSE(base.count(o.source.path)) << "a frozen parameter's: " << to_string(o.source);
      // Whatever it is called: activations have batch and seq before their width.
      if (!defaults && (o.type.rank() == 1 || o.type.rank() == 2)) {
        EXPECT_TRUE(adapters.count(o.source.path)) << to_string(o.source) << " by " << m.op;
      }
    }
  }
}

TEST(Lora, GradientAndOptimizerMemoryIsTheAdapters) {
  for (const Scheme& forward :
       {gpt2(0.1), llama(), test_model("qwen"), test_model("odd"), elaborate_text(kOdd)}) {
    for (const bool defaults : {true, false}) expect_adapters_only(forward, defaults);
  }
}

// Numbers for every input of a scheme, by path.
std::vector<Numbers> numbers_for(const Scheme& s, const std::map<std::string, Numbers>& given) {
  std::vector<Numbers> inputs;
  for (const Value in : s.inputs) inputs.push_back(given.at(s[in].source.path));
  return inputs;
}

std::map<std::string, Numbers> random_numbers(const Scheme& s, int64_t vocab) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::map<std::string, Numbers> given;
  for (const Value in : s.inputs) {
    Numbers& x = given[s[in].source.path];
    x.resize(s[in].type.num_elements());
    for (double& n : x) {
      n = s[in].role == Role::kParameter ? 0.3 * normal(random)
                                         : static_cast<double>(random() % vocab);
    }
  }
  return given;
}

TEST(Lora, ComputesWPlusScaledBA) {
  constexpr int64_t kRank = 3;
  constexpr double kAlpha = 5;
  const std::vector<std::pair<Scheme, int64_t>> models = {
      {gpt2(0.1), 11}, {llama(), 101}, {test_model("qwen"), 37}, {test_model("odd"), 37}};
  for (const auto& [with_dropout, vocab] : models) {
    const Scheme forward = without_randomness(with_dropout);
    const Scheme adapted =
        evaluation_scheme(with_dropout, parse_stack("lora(rank=3, alpha=5)"), {});
    const std::map<std::string, Numbers> given = random_numbers(adapted, vocab);
    std::map<std::string, Numbers> merged = given;
    int count = 0;
    for (const Value in : forward.inputs) {
      const std::string& path = forward[in].source.path;
      const std::string call = path.substr(0, path.rfind('.'));
      const auto a = given.find(call + ".lora_a.weight"), b = given.find(call + ".lora_b.weight");
      if (a == given.end() || !path.ends_with(".weight")) continue;
      ++count;
      const int64_t outs = forward[in].type.dim(0), ins = forward[in].type.dim(1);
      for (int64_t o = 0; o < outs; ++o) {
        for (int64_t i = 0; i < ins; ++i) {
          double sum = 0;
          for (int64_t r = 0; r < kRank; ++r)
            sum += b->second[o * kRank + r] * a->second[r * ins + i];
          merged[path][o * ins + i] += kAlpha / kRank * sum;
        }
      }
    }
    EXPECT_GE(count, 8);
    const Numbers with = run_scheme(adapted, numbers_for(adapted, given), true)[0];
    const Numbers plain = run_scheme(forward, numbers_for(forward, merged), true)[0];
    const Numbers without = run_scheme(forward, numbers_for(forward, given), true)[0];
    EXPECT_LT(relative_error(with, plain), 1e-13);
    EXPECT_GT(relative_error(without, plain), 1e-4) << "the adapters do something";
  }
}

// A step from the beginning, as float32 kernels run it.
struct FirstStep {
  explicit FirstStep(Scheme scheme) : run(scheme, make_plan(scheme, {.threads = num_threads()})) {
    initialize(run, 5);
    const Scheme& s = run.scheme();
    for (const Value in : s.inputs) {
      const std::string& path = s[in].source.path;
      if (s[in].role == Role::kInput) {
        auto* ids = static_cast<int32_t*>(run.data(in));
        for (int64_t i = 0; i < s[in].type.num_elements(); ++i) {
          ids[i] = static_cast<int32_t>((7 * i + static_cast<int64_t>(path.size())) % 11);
        }
      }
      if (path == "rate") run.set_number(in, 1e-3);
      if (path == kRandomCounter) {
        auto* counter = static_cast<int64_t*>(run.data(in));
        counter[0] = 5, counter[1] = 0, counter[2] = 0;
      }
    }
    run.step();
  }
  Run run;
};

void expect_base_at_first(const Scheme& forward, bool defaults) {
  FirstStep base(build_step(forward, stack_of("", defaults), {}).scheme);
  Scheme step = build_step(forward, stack_of("lora(rank=3)", defaults), {}).scheme;
  std::map<std::string, Value> gradients;
  for (const Morphism& m : step.morphisms) {
    if (m.op != "adamw" && m.op != "gang") continue;
    const int64_t calls = m.op == "gang" ? std::get<int64_t>(m.attrs.at("calls")) : 1;
    const size_t own = (m.inputs.size() - 4) / calls;  // p, g, m, v; four numbers are shared
    for (size_t k = 0; k + 4 < m.inputs.size(); k += own) {
      gradients[step[m.inputs[k]].source.path] = m.inputs[k + 1];
      step.outputs.push_back(m.inputs[k + 1]);
    }
  }
  FirstStep adapted(step);
  const double loss = base.run.number(base.run.scheme().outputs[0]);
  EXPECT_TRUE(std::isfinite(loss) && loss > 0);
  EXPECT_EQ(adapted.run.number(adapted.run.scheme().outputs[0]), loss);
  for (const auto& [path, v] : gradients) {
    const Numbers values = adapted.run.values(v);
    const bool zero = std::all_of(values.begin(), values.end(), [](double n) { return n == 0; });
    EXPECT_EQ(zero, path.ends_with(".lora_a.weight")) << path;
  }
  EXPECT_GE(gradients.size(), 16u);
}

TEST(Lora, AtFirstItIsTheBaseModelBitForBit) {
  for (const Scheme& forward : {gpt2(0.1), llama(), test_model("odd")}) {
    for (const bool defaults : {true, false}) expect_base_at_first(forward, defaults);
  }
}

}  // namespace
}  // namespace adjoint
