// What the texts that travel with the program do: who is frozen, who is trained how, what is added
// where and what is recomputed. Their laws are in docs/composition.md, which laws_test recomputes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/roles.h"
#include "base/error_text.h"
#include "functors/becomes.h"
#include "functors/functor_text.h"
#include "functors/pipeline.h"
#include "functors/with_rules.h"

namespace adjoint {
namespace {

Scheme said(const Scheme& forward, const std::string& stack) {
  return said_step(forward, parse_stack(stack), {});
}

SourceNames trained(const Scheme& s) {
  return sources_where(s, [](const Object& o) { return o.role == Role::kParameter && !o.frozen; });
}
std::set<int> blocks_of(const SourceNames& names) {
  std::set<int> blocks;
  for (const std::string& name : names) {
    blocks.insert(name.starts_with("block[") ? std::stoi(name.substr(6)) : -1);
  }
  return blocks;
}
std::string refusal(const Scheme& forward, const std::string& stack) {
  return error_text([&] { build_step(forward, parse_stack(stack), {}); });
}

constexpr const char* kTwoMaps = R"(scheme model:
  input %0 x: f32[b=2, h=4]
  input %1 t: i32[b=2]
  parameter %2 up.weight: f32[o=4, h=4]
  parameter %3 up.bias: f32[o=4]
  parameter %4 down.weight: f32[o=4, h=4]
  parameter %5 down.bias: f32[o=4]
  parameter %6 out.weight: f32[c=3, h=4]
  %7 up: f32[b=2, o=4] = linear(%0, %2, %3) @up
  %8 s1: f32[b=2, o=4] = add(%0, %7) @s1
  %9 down: f32[b=2, o=4] = linear(%8, %4, %5) @down
  %10 s2: f32[b=2, o=4] = add(%8, %9) @s2
  %11 out: f32[b=2, c=3] = linear(%10, %6) @out
  %12 loss: f32[] metric, %13 loss.count: f32[] metric, %14 loss.lse: f32[b=2] = cross_entropy(%11, %1) {ignore=-1} @loss
  return %12, %13
)";
const std::vector<std::string> kTwoCalls = {"up = linear(x, up.weight, up.bias)",
                                            "s1 = add(x, up)",
                                            "down = linear(s1, down.weight, down.bias)",
                                            "s2 = add(s1, down)",
                                            "out = linear(s2, out.weight)",
                                            "loss, loss.count, loss.lse = cross_entropy(out, t)"};

TEST(Bitfit, TrainsVectorsAlone) {
  expect_becomes("bitfit", kTwoMaps, kTwoCalls);
  EXPECT_EQ(trained(apply_functor("bitfit", parse_scheme(kTwoMaps))),
            (SourceNames{"up.bias", "down.bias"}));
  const Scheme step = said(small_gpt2(), "bitfit");
  for (const std::string& name : trained(step)) EXPECT_FALSE(name.ends_with("qkv.weight")) << name;
  EXPECT_EQ(trained(step).size(), 4 * 8u + 2u)
      << "two norms and four biases a block, the last norm";
  EXPECT_TRUE(trained(step).count("block[1].layer_norm#2.weight"));
}

TEST(LayerDecay, RatesFallTowardsTheInput) {
  expect_becomes("layer_decay", kTwoMaps, kTwoCalls);
  const Scheme two = apply_functor("layer_decay(0.5)", parse_scheme(kTwoMaps));
  EXPECT_EQ(object_at(two, "up.bias").attributes.training.rate, 0.25);
  EXPECT_EQ(object_at(two, "down.weight").attributes.training.rate, 0.5);
  EXPECT_EQ(object_at(two, "out.weight").attributes.training.rate, std::nullopt);
  const Scheme step = said(small_llama(), "layer_decay(0.5)");
  const auto rate = [&](const std::string& path) {
    return object_at(step, path).attributes.training.rate;
  };
  for (int l = 0; l < 4; ++l) {
    EXPECT_EQ(rate("block[" + std::to_string(l) + "].rms_norm#1.weight"), std::pow(0.5, 4 - l));
  }
  EXPECT_EQ(rate("wte.weight"), std::pow(0.5, 5));
  EXPECT_EQ(rate("readout.weight"), std::nullopt);
  EXPECT_EQ(object_at(said(small_gpt2(), "layer_decay"), "wte.weight").attributes.training.rate,
            std::nullopt)
      << "it is the readout, too";
  // What the rule of a rate says is what the updates read.
  int slow = 0;
  for (const Morphism& m : step.morphisms) {
    if (m.op == "adamw") slow += to_string(step[m.inputs[4]].source) == "rate:times.0.0625";
  }
  EXPECT_EQ(slow, 9) << "all of block 0";
  EXPECT_TRUE(has(refusal(small_llama(), "layer_decay(0)"), "factor must be more than 0, found 0"));
}

SourceNames operator+(SourceNames a, const SourceNames& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// Each of these trains something and nothing else; together they train all of it.
TEST(Adapters, AStackTrainsAllThatItsFunctorsTrain) {
  const Scheme model = small_llama();
  const SourceNames prompt = trained(said(model, "prompt(n=2)")), ia3 = trained(said(model, "ia3")),
                    lora = trained(said(model, "lora(4)")), bitfit = trained(said(model, "bitfit")),
                    dora = trained(said(model, "dora(rank=2)"));
  EXPECT_EQ(trained(said(model, "lora(4) | prompt(n=2)")), lora + prompt);
  EXPECT_EQ(trained(said(model, "lora(4) | bitfit")), lora + bitfit);
  EXPECT_EQ(trained(said(model, "dora(rank=2) | bitfit | prompt(n=2)")), dora + bitfit + prompt);
  const Scheme both = said(model, "ia3(attention_in) | lora(4, on=feed_forward)");
  EXPECT_EQ(trained(both), trained(said(model, "ia3(attention_in)")) +
                               trained(said(model, "lora(4, on=feed_forward)")));
  EXPECT_EQ(trained(said(model, "ia3(attention_in) | prompt(n=2)")),
            trained(said(model, "ia3(attention_in)")) + prompt);
  EXPECT_EQ(ia3.size(), trained(said(model, "ia3 | freeze(all)")).size());
}

// What is frozen plainly stays so, of the model's own parameters: adapters are not the model's.
TEST(Adapters, FreezeSpeaksOfTheModel) {
  const Scheme model = small_gpt2();
  EXPECT_EQ(trained(said(model, "dora(rank=2) | freeze(attention)")),
            trained(said(model, "dora(rank=2)")));
  SourceNames wanted = trained(said(model, "bitfit"));
  std::erase_if(wanted, [](const std::string& name) { return name.find("norm") == name.npos; });
  EXPECT_EQ(trained(said(model, "bitfit | freeze([attention, feed_forward])")), wanted);
}

// The names decide in which order functors are applied, and must decide nothing else.
TEST(Adapters, InAnyOrder) {
  const auto texts = [](const std::string& first, const std::string& second) {
    const std::string adapter = "functor " + first +
                                ":\n  law approximating\n"
                                "  object parameter -> frozen unless made or trained\n"
                                "  morphism y = linear(x, W) where readout\n"
                                "    gain = param(width(y), init=ones)\n    -> y * gain\n";
    const std::string norms = "functor " + second +
                              ":\n  law approximating\n"
                              "  object parameter of norm -> trained unless frozen\n"
                              "  object parameter -> frozen unless made or trained\n";
    Stack stack;
    for (const std::string& text : {adapter, norms}) {
      const Functor f = parse_functor(text, "f.functor");
      stack.functors.push_back({f, Arguments(f.name, f.params, {.kind = Term::Kind::kCall})});
    }
    return stack;
  };
  Stack forth = texts("a", "b"), back = forth;
  std::swap(back.functors[0], back.functors[1]);
  const SourceNames norms = sources_where(small_llama(), [](const Object& o) {
    return o.role == Role::kParameter && has(o.source.path, "norm");
  });
  ASSERT_EQ(norms.size(), 9u);
  EXPECT_EQ(trained(said_step(small_llama(), forth, {})), norms + SourceNames{"readout.gain"});
  EXPECT_EQ(trained(said_step(small_llama(), back, {})), norms + SourceNames{"readout.gain"});
}

// What quantizes, prunes or adapts matrices does so to the model's, not to those of adapters.
TEST(Adapters, AreNotRewrittenByOthers) {
  const Scheme model = small_llama();
  const auto uses = [&](const std::string& stack, const std::string& name) {
    for (const Applied& applied : build_step(model, parse_stack(stack), {}).applied) {
      if (applied.name.starts_with(name)) return applied.matches;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(uses("qat(bits=8)", "qat"), 4 * 7);
  EXPECT_EQ(uses("sparse24", "sparse24"), 4 * 7);
  for (const char* adapters : {"lora(4)", "lora_plus(4)", "ia3"}) {
    EXPECT_EQ(uses(std::string(adapters) + " | qat(bits=8)", "qat"), 4 * 7) << adapters;
  }
  for (const char* adapters : {"lora(4)", "rslora(4)", "ia3"}) {
    EXPECT_EQ(uses(std::string(adapters) + " | sparse24", "sparse24"), 4 * 7) << adapters;
  }
  EXPECT_EQ(uses("lora(4) | rslora(4)", "rslora"), 4 * 7) << "no adapters of adapters";
}

// Names of parameters, and what is said of each one's training.
std::map<std::string, Training> trained_how(const Scheme& s) {
  std::map<std::string, Training> all;
  for (const Value in : s.inputs) {
    if (s[in].role == Role::kParameter && !s[in].frozen) {
      all[s[in].source.path] = s[in].attributes.training;
    }
  }
  return all;
}

TEST(LoraPlus, IsLoraWithAFasterSecondMatrix) {
  const Scheme plain = said(small_llama(), "lora(4)"),
               plus = said(small_llama(), "lora_plus(4, ratio=8)");
  const auto before = trained_how(plain), after = trained_how(plus);
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [path, training] : after) {
    EXPECT_TRUE(before.count(path)) << path;
    const bool second = path.ends_with(".lora_b.weight");
    EXPECT_EQ(training.rate, second ? std::optional(8.0) : std::nullopt) << path;
  }
  // Nothing else is another: with a ratio of 1 it is the same step.
  Scheme same = said(small_llama(), "lora_plus(4, ratio=1)");
  for (Object& o : same.objects) o.attributes.training = {};
  EXPECT_EQ(print(same), print(plain));
}

TEST(Rslora, IsScaledByTheRootOfTheRank) {
  const auto by = [&](const std::string& stack) {
    return std::get<double>(
        call_at(said(small_gpt2(), stack), "block[2].up.scale#1").attrs.at("by"));
  };
  EXPECT_EQ(by("lora(4, alpha=8)"), 2.0);
  EXPECT_EQ(by("rslora(4, alpha=8)"), 4.0);
  EXPECT_EQ(by("rslora(16, alpha=8)"), 2.0);
  EXPECT_EQ(trained(said(small_gpt2(), "rslora(4)")), trained(said(small_gpt2(), "lora(4)")));
}

TEST(Lora, InTheFirstOrLastBlocks) {
  const auto adapted = [](const std::string& stack) {
    return blocks_of(trained(said(small_gpt2(), stack)));
  };
  EXPECT_EQ(adapted("lora(2)"), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(adapted("lora(2, last=1)"), (std::set<int>{3}));
  EXPECT_EQ(adapted("lora(2, first=3)"), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(adapted("lora(2, first=3, last=3)"), (std::set<int>{1, 2}));
  EXPECT_EQ(refusal(small_gpt2(), "lora(2, last=5)"),
            "lora: first=all and last=5 are at most the 4 blocks of the chain");
}

TEST(Freeze, InTheFirstOrLastBlocks) {
  EXPECT_EQ(blocks_of(frozen(said(small_gpt2(), "freeze(all, first=2)"))), (std::set<int>{0, 1}));
  EXPECT_EQ(frozen(said(small_gpt2(), "freeze(all, first=2)")).size(), 2 * 12u);
  EXPECT_EQ(frozen(said(small_llama(), "freeze(attention_out, last=2)")),
            (SourceNames{"block[2].o.weight", "block[3].o.weight"}));
  EXPECT_EQ(frozen(said(small_llama(), "freeze([embedding, norm])")).size(), 10u);
  EXPECT_EQ(refusal(small_gpt2(), "freeze(norm, first=9)"),
            "freeze: first=9 and last=all are at most the 4 blocks of the chain");
  EXPECT_TRUE(has(refusal(small_gpt2(), "freeze(all)"), "nothing is trained"));
}

TEST(Recompute, WhatItNamesInEverySoManyBlocks) {
  const auto recomputed = [](const Scheme& forward, const std::string& stack) {
    return sources_where(said(forward, stack + " | -recompute_cheap"), [](const Object& o) {
      return o.attributes.residence == Residence::kRecomputed;
    });
  };
  EXPECT_EQ(recomputed(small_gpt2(), "recompute(feed_forward, every=3)"),
            (SourceNames{"block[0].gelu#1", "block[3].gelu#1"}));
  EXPECT_EQ(recomputed(small_gpt2(), "recompute(norm, every=4)"),
            (SourceNames{"block[0].layer_norm#1", "block[0].layer_norm#2"}));
  EXPECT_EQ(recomputed(small_gpt2(), "recompute([attention, feed_forward], every=2)"),
            (SourceNames{"block[0].attention#1", "block[0].attention#1.lse", "block[0].gelu#1",
                         "block[2].attention#1", "block[2].attention#1.lse", "block[2].gelu#1"}));
  // In every block it is what checkpoint(selective) does.
  EXPECT_EQ(print(said(small_llama(), "recompute(attention)")),
            print(said(small_llama(), "checkpoint(selective)")));
  EXPECT_TRUE(
      has(refusal(small_gpt2(), "recompute(norm, every=5)"), "every=5 is more than the 4 blocks"));
}

TEST(Ia3, ScalesWhatAttentionsAndFeedForwardsAreGiven) {
  const Scheme two = small_llama(), one = small_gpt2();
  EXPECT_EQ(trained(said(two, "ia3")).size(), 4 * 3u) << "keys, values, and down";
  for (const std::string& name : trained(said(two, "ia3"))) EXPECT_FALSE(has(name, ".q.")) << name;
  EXPECT_EQ(trained(said(one, "ia3(feed_forward)")),
            (SourceNames{"block[0].down.gain", "block[1].down.gain", "block[2].down.gain",
                         "block[3].down.gain"}));
  EXPECT_EQ(trained(said(one, "ia3(attention_in)")),
            (SourceNames{"block[0].qkv.gain", "block[1].qkv.gain", "block[2].qkv.gain",
                         "block[3].qkv.gain"}));
  const Scheme step = said(one, "ia3");
  EXPECT_EQ(object_at(step, "block[0].qkv.gain").type.num_elements(), 2 * 8) << "no queries";
  EXPECT_EQ(object_at(step, "block[0].down.gain").type.num_elements(), 4 * 8);
  EXPECT_EQ(object_at(step, "block[0].down.gain").init->kind, Init::Kind::kOnes);
  const Morphism down = call_at(step, "block[1].down.linear#1");
  EXPECT_EQ(to_string(step[down.inputs[0]].source), "block[1].down.mul#1");
  EXPECT_EQ(to_string(step[down.inputs[2]].source), "block[1].down.bias");
}

// Where one map gives queries, keys and values, gains are those of its last rows.
TEST(Ia3, LeavesQueriesOfAPackedMap) {
  const Scheme before = small_gpt2(), after = apply_functor("ia3(attention_in)", before);
  std::vector<Numbers> x = numbers_for(before), scaled = x;
  for (size_t k = 0; k < before.inputs.size(); ++k) {
    const std::string& path = before[before.inputs[k]].source.path;
    if (!has(path, ".qkv.")) continue;
    const size_t queries = scaled[k].size() / 3;  // of 24 rows, or of 24 numbers
    for (size_t i = queries; i < scaled[k].size(); ++i) scaled[k][i] *= 2;
  }
  ASSERT_EQ(after.inputs.size(), before.inputs.size() + 4);
  for (int block = 0; block < 4; ++block) x.emplace_back(2 * 8, 2.0);
  const double plain = run_scheme(before, numbers_for(before), false)[0][0];
  const double wanted = run_scheme(before, scaled, false)[0][0];
  EXPECT_NEAR(run_scheme(after, x, false)[0][0], wanted, 1e-4 * wanted);
  EXPECT_GT(std::abs(plain - wanted), 1e-2 * wanted);
}

// A map of its own matrix, to whose rows lengths were given: with lengths of one, and nothing added
// yet, that is the matrix itself.
TEST(Dora, BeginsAsTheModel) {
  const Scheme before = parse_scheme(kTwoMaps), after = apply_functor("dora(rank=2)", before);
  EXPECT_EQ(trained(after), (SourceNames{"up.dora_a", "up.dora_b", "up.length", "down.dora_a",
                                         "down.dora_b", "down.length"}));
  std::vector<Numbers> x = numbers_for(before);
  const auto wanted = run_scheme(before, x, false);
  for (size_t k = x.size(); k < after.inputs.size(); ++k) {
    const Object& o = after[after.inputs[k]];
    const double at = o.source.path.ends_with("length") ? 1
                      : o.source.path.ends_with("_a")   ? 0.3
                                                        : 0;
    EXPECT_EQ(o.init->kind, at == 1     ? Init::Kind::kOnes
                            : at == 0.3 ? Init::Kind::kUniform
                                        : Init::Kind::kZeros);
    x.emplace_back(o.type.num_elements(), at);
  }
  const auto made = run_scheme(after, x, false);
  EXPECT_NEAR(made[0][0], wanted[0][0], 1e-5);
  // Rows of twice the length, in another direction: only what is added to the matrix turns them.
  for (size_t k = 0; k < x.size(); ++k) {
    if (after[after.inputs[k]].source.path == "up.dora_b") x[k].assign(x[k].size(), 0.5);
  }
  EXPECT_GT(std::abs(run_scheme(after, x, false)[0][0] - wanted[0][0]), 1e-3);
}

// The lengths are vectors, which do not decay, and the thin matrices are matrices.
TEST(Dora, LengthsAreVectors) {
  const Scheme step = said(small_llama(), "dora(rank=2)");
  EXPECT_EQ(trained(step).size(), 4 * 7 * 3u);
  const std::vector<ParameterKind> kinds = parameter_kinds(step);
  const auto kind = [&](const std::string& path) { return kinds[*step.find({path})]; };
  EXPECT_EQ(kind("block[1].up.length"), ParameterKind::kVector);
  EXPECT_EQ(kind("block[1].up.dora_a"), ParameterKind::kMatrix);
  EXPECT_EQ(kind("block[1].up.dora_b"), ParameterKind::kMatrix);
  EXPECT_EQ(kind("block[1].up.weight"), ParameterKind::kMatrix);
  EXPECT_TRUE(has(refusal(small_llama(), "dora(alpha=0)"), "alpha must be more than 0"));
}

// Of every four weights of a row two are used, and only these have gradients.
TEST(Sparse24, UsesTheTwoLargestOfFour) {
  const Scheme before = parse_scheme(R"(scheme model:
  input %0 x: f32[b=1, h=8]
  input %1 t: i32[b=1]
  parameter %2 a.weight: f32[h=8, h=8]
  parameter %3 b.weight: f32[h=8, h=8]
  %4 a: f32[b=1, h=8] = linear(%0, %2) @a
  %5 u: f32[b=1, h=8] = relu(%4) @u
  %6 b: f32[b=1, h=8] = linear(%5, %3) @b
  %7 v: f32[b=1, h=8] = relu(%6) @v
  %8 loss: f32[] metric, %9 loss.count: f32[] metric, %10 loss.lse: f32[b=1] = cross_entropy(%7, %1) {ignore=-1} @loss
  return %8, %9
)");
  const Scheme after = apply_functor("sparse24", before);
  const std::vector<Numbers> x = numbers_for(before);
  Numbers rows = x[0];
  for (const Numbers& matrix : {x[2], x[3]}) {
    const Numbers from = rows;
    for (int64_t o = 0; o < 8; ++o) {
      rows[o] = 0;
      for (int64_t four = 0; four < 8; four += 4) {
        std::vector<int64_t> order = {0, 1, 2, 3};
        const double* row = &matrix[o * 8 + four];
        std::sort(order.begin(), order.end(),
                  [&](int64_t i, int64_t j) { return std::abs(row[i]) > std::abs(row[j]); });
        for (int k = 0; k < 2; ++k) rows[o] += row[order[k]] * from[four + order[k]];
      }
      rows[o] = std::max(rows[o], 0.0);
    }
  }
  double sum = 0;
  for (const double v : rows) sum += std::exp(v);
  const double wanted = std::log(sum) - rows[static_cast<size_t>(x[1][0])];
  EXPECT_NEAR(run_scheme(after, x, false)[0][0], wanted, 1e-5);
  EXPECT_GT(std::abs(run_scheme(before, x, false)[0][0] - wanted), 1e-3);
  EXPECT_TRUE(
      has(refusal(elaborate_preset("llama-tiny", {{"layers", 2}, {"ffn", 30}, {"batch", 2}}),
                  "sparse24"),
          "must be a whole number"));
}

constexpr const char* kTokens = R"(scheme model:
  input %0 x: i32[b=2, s=4]
  input %1 t: i32[b=2, s=4]
  parameter %2 table.weight: f32[v=3, h=3]
  %3 table: f32[b=2, s=4, h=3] = embed(%0, %2) @table
  %4 loss: f32[] metric, %5 loss.count: f32[] metric, %6 loss.lse: f32[b=2, s=4] = cross_entropy(%3, %1) {ignore=-1} @loss
  return %4, %5
)";

// The first n positions have the prompt's rows, whatever is there, and all of them but the last
// predict nothing that counts.
TEST(Prompt, StandsInTheFirstPositions) {
  const Scheme before = parse_scheme(kTokens), after = apply_functor("prompt(n=2)", before);
  EXPECT_EQ(trained(after), SourceNames{"table.prompt"});
  std::vector<Numbers> x = numbers_for(before);
  x.push_back({0.5, -1, 2, 1, 1, -3});
  double wanted = 0;
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t at = i % 4;
    if (at == 0) continue;
    const Numbers& from = at < 2 ? x[3] : x[2];
    const int64_t row = at < 2 ? at : static_cast<int64_t>(x[0][i]);
    double sum = 0;
    for (int64_t c = 0; c < 3; ++c) sum += std::exp(from[row * 3 + c]);
    wanted += std::log(sum) - from[row * 3 + static_cast<int64_t>(x[1][i])];
  }
  const auto made = run_scheme(after, x, false);
  EXPECT_NEAR(made[0][0], wanted, 1e-5);
  EXPECT_EQ(made[1][0], 6);
}

TEST(Prompt, KnowsTokensFromPositions) {
  EXPECT_EQ(trained(said(small_gpt2(), "prompt(n=3)")), SourceNames{"wte.prompt"});
  EXPECT_EQ(trained(said(small_llama(), "prompt(n=4)")), SourceNames{"wte.prompt"});
  EXPECT_TRUE(has(refusal(small_llama(), "prompt(n=5)"), "pad: n=5 at 0 is not inside 4"))
      << refusal(small_llama(), "prompt(n=5)");
}

TEST(Qlora, IsFourKnownFunctors) {
  const Scheme step = said(small_llama(), "qlora(rank=2, group=8)");
  EXPECT_EQ(object_at(step, "block[0].q.weight").attributes.precision, "nf4/8");
  EXPECT_EQ(object_at(step, "block[0].add#1").attributes.precision, "bf16");
  EXPECT_EQ(object_at(step, "block[0].add#1").attributes.residence, Residence::kRecomputed);
  EXPECT_EQ(trained(step), trained(said(small_llama(), "lora(2)")));
}

}  // namespace
}  // namespace adjoint
