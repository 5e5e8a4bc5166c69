// What a parameter is, told from its uses: the same sizes under other names and in other places
// give other kinds. Names in these schemes mislead on purpose.
#include "analysis/roles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "functors/evaluation.h"
#include "functors/phases.h"
#include "models/small_models.h"
#include "ops/builder.h"
#include "ops/op_def.h"

namespace adjoint {
namespace {

// Kinds of the inputs that are parameters, in order.
std::vector<ParameterKind> kinds_in(std::string_view text) {
  const Scheme scheme = parse_scheme(text);
  verify(scheme);
  const std::vector<ParameterKind> all = parameter_kinds(scheme);
  EXPECT_EQ(all.size(), scheme.objects.size());
  std::vector<ParameterKind> kinds;
  for (const Value in : scheme.inputs) {
    if (scheme[in].role == Role::kParameter) kinds.push_back(all[in]);
  }
  return kinds;
}

using Kinds = std::vector<ParameterKind>;
constexpr auto kMatrix = ParameterKind::kMatrix;
constexpr auto kTable = ParameterKind::kTable;
constexpr auto kVector = ParameterKind::kVector;

TEST(Roles, ALinearMapHasAMatrixAndABias) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, i=3]
  parameter %1 bias: f32[o=5, i=3]
  parameter %2 weight: f32[o=5]
  %3 y: f32[b=2, o=5] = linear(%0, %1, %2) @y
  return %3
)"),
            (Kinds{kMatrix, kVector}));
}

TEST(Roles, GainsAndShiftsOfNormsAreVectors) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, i=3]
  parameter %1 matrix: f32[i=3]
  parameter %2 table: f32[i=3]
  parameter %3 w: f32[i=3]
  %4 n: f32[b=2, i=3] = layer_norm(%0, %1, %2) @n
  %5 r: f32[b=2, i=3] = rms_norm(%4, %3) @r
  return %5
)"),
            (Kinds{kVector, kVector, kVector}));
}

TEST(Roles, LookedUpByIdsItIsATable) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 tokens: i32[b=2, s=4]
  parameter %1 wte: f32[v=7, i=3]
  parameter %2 wpe: f32[context=9, i=3]
  %3 at: i32[s=4] = positions() {shape=[4]} @at
  %4 x: f32[b=2, s=4, i=3] = embed(%0, %1) @x
  %5 p: f32[s=4, i=3] = embed(%3, %2) @p
  %6 y: f32[b=2, s=4, i=3] = add(%4, %5) @y
  return %6
)"),
            (Kinds{kTable, kTable}));
}

// The readout's weight is the table itself: used as a matrix anywhere, it is one.
TEST(Roles, ATiedReadoutIsAMatrixWhicheverUseComesFirst) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 tokens: i32[b=2]
  parameter %1 wte: f32[v=7, i=3]
  %2 x: f32[b=2, i=3] = embed(%0, %1) @x
  %3 y: f32[b=2, v=7] = linear(%2, %1) @y
  return %3
)"),
            (Kinds{kMatrix}));
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 tokens: i32[b=2]
  input %1 h: f32[b=2, i=3]
  parameter %2 wte: f32[v=7, i=3]
  %3 y: f32[b=2, v=7] = linear(%1, %2) @y
  %4 x: f32[b=2, i=3] = embed(%0, %2) @x
  return %3, %4
)"),
            (Kinds{kMatrix}));
}

// Two axes do not make a matrix, and one axis may: it is the summing that does.
TEST(Roles, ShapeAloneDecidesNothing) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, s=4, i=3]
  parameter %1 scale: f32[s=4, i=3]
  parameter %2 shift: f32[s=4, i=3]
  parameter %3 direction: f32[i=3]
  %4 y: f32[b=2, s=4, i=3] = mul(%0, %1) @y
  %5 z: f32[b=2, s=4, i=3] = add(%4, %2) @z
  %6 along: f32[b=2, s=4] = contract(%5, %3) {map="bsi,i->bs"} @along
  return %6
)"),
            (Kinds{kVector, kVector, kMatrix}));
}

// Gradients read parameters too (the input gradient of a linear map sums over its rows), and an
// update reads them all; neither says what the parameter is.
TEST(Roles, OnlyTheForwardPassCounts) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, i=3]
  parameter %1 gain: f32[i=3]
  %2 y: f32[b=2, i=3] = mul(%0, %1) @y
  %3 dx: f32[b=2] gradient = contract(%0, %1) {map="bi,i->b"} @y:grad backward
  return %2, %3
)"),
            (Kinds{kVector}));
}

TEST(Roles, AFrozenParameterHasAKindAndAnUnusedOneIsAVector) {
  EXPECT_EQ(kinds_in(R"(scheme:
  input %0 x: f32[b=2, i=3]
  parameter %1 w: f32[o=5, i=3] frozen
  parameter %2 idle: f32[o=5, i=3]
  %3 y: f32[b=2, o=5] = linear(%0, %1) @y
  return %3
)"),
            (Kinds{kMatrix, kVector}));
}

// Roles of a model whose names say something else: a router, a fused projection, both halves of a
// block side by side.
constexpr std::string_view kOdd = R"(axes depth=3 wide=12 eyes=3 context=6 words=13
wobble x[batch, seq, wide]:
  s = layer_norm(x, name=qkv)
  a = attention(linear(s, 3*wide, name=mlp), eyes, causal)
  f = linear(gelu(linear(s, 5*wide, name=o_proj)), wide, name=embed)
  x = x + linear(a, wide, name=lm_head) + f
model tokens[batch, seq], targets[batch, seq]:
  x = wobble^depth(linear(embed(tokens, words, wide, name=norm), wide, name=router))
  loss = cross_entropy(linear(x, words, name=block), targets)
)";

using Paths = std::set<std::string>;

Paths calls_that_are(const Scheme& scheme, std::string_view word) {
  const Roles roles(scheme);
  Paths paths;
  for (size_t m = 0; m < scheme.morphisms.size(); ++m) {
    if (roles.morphism_is(static_cast<int>(m), word)) paths.insert(scheme.morphisms[m].source.path);
  }
  return paths;
}

template <class Holds>
Paths objects_where(const Scheme& scheme, const Holds& holds) {
  Paths paths;
  for (size_t v = 0; v < scheme.objects.size(); ++v) {
    if (holds(static_cast<Value>(v))) paths.insert(to_string(scheme.objects[v].source));
  }
  return paths;
}

Paths in_wobbles(const std::string& name) {
  Paths paths;
  for (int l = 0; l < 3; ++l) paths.insert("wobble[" + std::to_string(l) + "]." + name);
  return paths;
}

TEST(Roles, UsesAreToldFromWhereResultsGo) {
  const Scheme forward = elaborate_text(kOdd);
  for (const Scheme& s : {forward, apply_optimizer(apply_adjoint(forward), {})}) {
    EXPECT_EQ(calls_that_are(s, "attention_in"), in_wobbles("mlp"));
    EXPECT_EQ(calls_that_are(s, "attention_out"), in_wobbles("lm_head"));
    Paths feed = in_wobbles("o_proj");
    feed.merge(in_wobbles("embed"));
    EXPECT_EQ(calls_that_are(s, "feed_forward"), feed);
    EXPECT_EQ(calls_that_are(s, "readout"), Paths{"block"});
    EXPECT_EQ(calls_that_are(s, "embedding"), Paths{"norm"});
    EXPECT_EQ(calls_that_are(s, "norm"), in_wobbles("qkv"));
    EXPECT_EQ(calls_that_are(s, "router"), Paths{});
    EXPECT_EQ(calls_that_are(s, "linear").size(), 3u * 4 + 2);
  }
}

// What is sampled from has no loss: its logits are what it gives.
TEST(Roles, TheReadoutOfAModelWithoutALoss) {
  EXPECT_EQ(calls_that_are(logits_of(elaborate_text(kOdd)), "readout"), Paths{"block"});
}

TEST(Roles, AttentionReachesFromItsProjectionsToItsOutput) {
  const Scheme s = elaborate_preset("llama-tiny");
  const Roles roles(s);
  const Paths wanted = objects_where(s, [&](Value v) {
    const std::string& path = s[v].source.path;
    return path.find(".rotary#") != path.npos || path.find(".attention#") != path.npos;
  });
  EXPECT_TRUE(wanted.count("block[1].attention#1.lse") && wanted.count("block[0].rotary#2"));
  EXPECT_EQ(objects_where(s, [&](Value v) { return roles.is_inside(v, "attention"); }), wanted);
}

TEST(Roles, StatesAreInTheChainAndNotInsideABlock) {
  const Scheme s = elaborate_text(kOdd);
  const Roles roles(s);
  EXPECT_EQ(objects_where(s, [&](Value v) { return roles.is(v, "state"); }),
            (Paths{"router", "wobble[0].add#2", "wobble[1].add#2", "wobble[2].add#2"}));
  for (Value v = 0; v < static_cast<Value>(s.objects.size()); ++v) {
    const bool inside = s[v].source.path.starts_with("wobble[");
    EXPECT_EQ(roles.is_inside(v, "chain"), inside) << s[v].source.path;
    EXPECT_EQ(roles.is_inside(v, "block"), inside && !roles.is(v, "state")) << s[v].source.path;
  }
}

// Gradients of parameters, and of everything else; parts of sums go with their whole.
TEST(Roles, GradientsOfParametersAndOfActivations) {
  const Scheme s = apply_optimizer(apply_adjoint(elaborate_preset("char")), {});
  const Roles roles(s);
  int of_parameters = 0;
  for (Value v = 0; v < static_cast<Value>(s.objects.size()); ++v) {
    if (s[v].role != Role::kGradient) {
      EXPECT_FALSE(roles.is(v, "gradient"));
      continue;
    }
    const auto owner = s.find({s[v].source.path});
    const bool parameter = owner && s[*owner].role == Role::kParameter;
    EXPECT_EQ(roles.is_of(v, "parameter"), parameter) << to_string(s[v].source);
    // What depends on no data, a row per position, is no activation either.
    const bool activation = !parameter && s[v].source.path != "wpe";
    EXPECT_EQ(roles.is_of(v, "activation"), activation) << to_string(s[v].source);
    of_parameters += parameter;
  }
  EXPECT_GE(of_parameters, 52 + 1) << "one each, and the tied table's parts";
}

TEST(Roles, DescribesWhatASchemeHas) {
  const std::string said = Roles(elaborate_text(kOdd)).describe();
  for (const char* part : {"a chain of 3 blocks", "2 input", "35 parameter", "14 uses as linear",
                           "3 uses as attention_in", "1 use as readout", "3 uses as norm"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
  }
}

// What a selector finds in a whole step, by source.
std::set<std::string> found(const Scheme& step, const std::string& is,
                            const std::vector<std::string>& of) {
  const Roles roles(step);
  std::set<std::string> names;
  for (size_t v = 0; v < step.objects.size(); ++v) {
    const auto object = static_cast<Value>(v);
    bool all = roles.is(object, is);
    for (const std::string& word : of) {
      all = all && (roles.is_of(object, word) || roles.is(object, word));
    }
    if (all) names.insert(to_string(step[object].source));
  }
  return names;
}

TEST(Roles, GradientsAndStatesAreOfWhatTheirParameterIsUsedAs) {
  const Scheme step =
      apply_optimizer(apply_adjoint(elaborate_text(R"(axes hidden=8 context=4 vocab=11
model tokens[batch, seq], targets[batch, seq]:
  x = embed(tokens, vocab, name=table)
  x = x + linear(gelu(linear(rms_norm(x), 16, bias=no, name=up)), hidden, bias=no, name=down)
  x = x + linear(gelu(linear(rms_norm(x), 16, bias=no, name=up2)), hidden, bias=no, name=down2)
  loss = cross_entropy(linear(rms_norm(x), vocab, bias=no, name=out), targets)
)",
                                                   {.settings = {{"batch", 2}}})),
                      {});
  using Names = std::set<std::string>;
  EXPECT_EQ(found(step, "optimizer_state", {"embedding"}),
            (Names{"table.weight:adamw.m", "table.weight:adamw.v"}));
  EXPECT_EQ(found(step, "optimizer_state", {"readout"}),
            (Names{"out.weight:adamw.m", "out.weight:adamw.v"}));
  EXPECT_EQ(found(step, "gradient", {"parameter", "feed_forward"}),
            (Names{"up.weight:grad", "down.weight:grad", "up2.weight:grad", "down2.weight:grad"}));
  EXPECT_EQ(found(step, "gradient", {"parameter", "readout"}), (Names{"out.weight:grad"}));
  EXPECT_EQ(found(step, "gradient", {"activation", "readout"}), (Names{"out:grad"}));
}

// Joined weights are still their readers'.
TEST(Roles, ParametersAreSeenThroughJoins) {
  const char* text = R"(scheme:
  input %0 x: f32[s=3, h=4]
  input %1 t: i32[s=3]
  parameter %2 first: f32[o=5, h=4]
  parameter %3 second: f32[o=2, h=4]
  %4 both: f32[o=7, h=4] = concat(%2, %3) @both
  %5 y: f32[s=3, o=7] = linear(%0, %4) @y
  %6 loss: f32[] metric, %7 loss.count: f32[] metric, %8 loss.lse: f32[s=3] = cross_entropy(%5, %1) {ignore=-1} @loss
  return %6, %7
)";
  const Scheme scheme = parse_scheme(text);
  verify(scheme);
  EXPECT_EQ(found(scheme, "parameter", {"readout"}), (std::set<std::string>{"first", "second"}));
}

TEST(Roles, OpsFixTheTypeOfLogSums) {
  const Scheme scheme = parse_scheme(R"(scheme:
  input %0 qkv: f32[b=2, s=3, h=12]
  input %1 t: i32[b=2, s=3]
  %2 a: f32[b=2, s=3, h=4], %3 a.lse: f32[b=2, kv=2, g=1, s=3] = attention(%0) {heads=2, kv_heads=2} @a
  %4 e: f32[b=2, s=3, h=4] = exp(%2) @e
  %5 loss: f32[] metric, %6 loss.count: f32[] metric, %7 loss.lse: f32[b=2, s=3] = cross_entropy(%4, %1) {ignore=-1} @loss
  return %5, %6
)");
  verify(scheme);
  EXPECT_EQ(fixed_dtypes(scheme),
            (std::vector<bool>{false, false, false, true, false, true, true, true}));
}

// By the path of the map, where it is known.
using Queries = std::map<std::string, int64_t>;
Queries queries_by_map(const Scheme& scheme) {
  const Roles roles(scheme);
  Queries found;
  for (size_t m = 0; m < scheme.morphisms.size(); ++m) {
    const int i = static_cast<int>(m);
    const auto queries = roles.queries_of(i);
    if (queries && roles.use_of(i) == Use::kAttentionIn) {
      found[scheme.morphisms[m].source.path] = *queries;
    }
  }
  return found;
}

// Attention and linear attention that are written in smaller ops have the same roles around them.
TEST(Roles, AttentionIsFoundByItsStructure) {
  const auto words = [](const Scheme& scheme) {
    const Roles roles(scheme);
    std::map<std::string, std::set<std::string>> found;
    for (const Value in : scheme.inputs) {
      for (const std::string& word : of_words()) {
        if (roles.is_of(in, word)) found[scheme[in].source.path].insert(word);
      }
    }
    return found;
  };
  for (const char* preset : {"gpt2", "llama-tiny"}) {
    const Scheme model = elaborate_preset(preset, {{"layers", 2}, {"context", 8}});
    const auto attends = [](const Morphism& m) { return op_named(m.op).attends; };
    const Scheme written = expand_meanings(model, attends);
    ASSERT_GT(written.morphisms.size(), model.morphisms.size());
    EXPECT_EQ(words(written), words(model)) << preset;
    // Of a packed row that is cut by hand nothing is known.
    const bool packed = preset == std::string("gpt2");
    EXPECT_EQ(queries_by_map(written), packed ? Queries{} : queries_by_map(model)) << preset;
    const Roles roles(written);
    const auto is_inside = [&](const Morphism& m) {
      return roles.is_inside(m.outputs[0], "attention");
    };
    EXPECT_TRUE(std::any_of(written.morphisms.begin(), written.morphisms.end(), is_inside));
  }
  // Without a softmax: q (k v), and a gate, which multiplies what is not mixed.
  const Scheme linear = parse_scheme(R"(scheme:
  input %0 x: f32[b=2, s=3, h=4]
  parameter %1 wq: f32[o=4, h=4]
  parameter %2 wk: f32[o=4, h=4]
  parameter %3 wv: f32[o=4, h=4]
  parameter %4 wo: f32[o=4, h=4]
  parameter %5 gate: f32[o=4, h=4]
  %6 q: f32[b=2, s=3, o=4] = linear(%0, %1) @q
  %7 k: f32[b=2, s=3, o=4] = linear(%0, %2) @k
  %8 v: f32[b=2, s=3, o=4] = linear(%0, %3) @v
  %9 state: f32[b=2, d=4, e=4] = contract(%7, %8) {map="btd,bte->bde"} @state
  %10 mixed: f32[b=2, s=3, e=4] = contract(%6, %9) {map="bsd,bde->bse"} @mixed
  %11 y: f32[b=2, s=3, o=4] = linear(%10, %4) @y
  %12 g: f32[b=2, s=3, o=4] = linear(%0, %5) @g
  %13 z: f32[b=2, s=3] = contract(%12, %0) {map="bsd,bsd->bs"} @z
  return %11, %13
)");
  auto found = words(linear);
  for (const char* in : {"wq", "wk", "wv"}) EXPECT_TRUE(found[in].count("attention_in")) << in;
  EXPECT_TRUE(found["wo"].count("attention_out"));
  EXPECT_FALSE(found["gate"].count("attention"));
}

// Gates that are products of rows follow each other along the residual stream, and are no scores.
TEST(Roles, ProductsOfRowsAreNoAttention) {
  const Scheme gated = parse_scheme(R"(scheme:
  input %0 x: f32[b=2, s=3, h=4]
  input %1 t: i32[b=2, s=3]
  parameter %2 first: f32[o=4, h=4]
  parameter %3 second: f32[o=4, h=4]
  parameter %4 readout: f32[c=5, h=4]
  %5 u: f32[b=2, s=3, o=4] = linear(%0, %2) @u
  %6 g: f32[b=2, s=3] = contract(%5, %0) {map="bsd,bsd->bs"} @g
  %7 wide: f32[b=2, s=3, n=1] = unsqueeze(%6) {axis=2} @wide
  %8 y: f32[b=2, s=3, h=4] = mul(%0, %7) @y
  %9 v: f32[b=2, s=3, o=4] = linear(%8, %3) @v
  %10 i: f32[b=2, s=3] = contract(%9, %8) {map="bsd,bsd->bs"} @i
  %11 narrow: f32[b=2, s=3, n=1] = unsqueeze(%10) {axis=2} @narrow
  %12 z: f32[b=2, s=3, h=4] = mul(%8, %11) @z
  %13 out: f32[b=2, s=3, c=5] = linear(%12, %4) @out
  %14 loss: f32[] metric, %15 loss.count: f32[] metric, %16 loss.lse: f32[b=2, s=3] = cross_entropy(%13, %1) {ignore=-1} @loss
  return %14, %15
)");
  const Roles roles(gated);
  EXPECT_TRUE(roles.is_of(4, "readout"));
  for (const Value in : {2, 3, 4}) EXPECT_FALSE(roles.is_of(in, "attention")) << in;
}

// What an attention reads of a row as queries, through norms and rotations and in packed rows.
TEST(Roles, QueriesStandAtTheBeginningOfARow) {
  const Scheme packed = elaborate_preset("char", {{"layers", 1}, {"hidden", 16}, {"heads", 2}});
  EXPECT_EQ(queries_by_map(packed), (Queries{{"block[0].qkv", 16}}));
  const Scheme grouped = elaborate_preset("qwen3-tiny", {{"layers", 1}});
  const int64_t width = grouped[*grouped.find({"block[0].q"})].type.dim(-1);
  EXPECT_EQ(queries_by_map(grouped),
            (Queries{{"block[0].q", width}, {"block[0].k", 0}, {"block[0].v", 0}}));
  const Roles roles(grouped);
  for (size_t m = 0; m < grouped.morphisms.size(); ++m) {
    const std::string& path = grouped.morphisms[m].source.path;
    const int i = static_cast<int>(m);
    EXPECT_EQ(roles.morphism_is(i, "attention_q"), path == "block[0].q") << path;
    EXPECT_EQ(roles.morphism_is(i, "attention_kv"), path == "block[0].k" || path == "block[0].v")
        << path;
  }
  // Queries last: nothing can be said of the beginning.
  const Scheme turned = elaborate_text(R"(axes h=8 heads=2 context=4
model x f32[batch, seq, h]:
  all = linear(x, 3*h, name=all)
  y = attention(slice(all, 2*h, h), heads, causal, k=slice(all, 0, h), v=slice(all, h, h))
  y = linear(y, h)
)");
  EXPECT_EQ(queries_by_map(turned), Queries{});
}

}  // namespace
}  // namespace adjoint
