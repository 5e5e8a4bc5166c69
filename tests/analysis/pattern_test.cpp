// What a pattern matches, and what keeps calls that match from being joined.
#include "analysis/pattern.h"

#include <gtest/gtest.h>

namespace adjoint {
namespace {

Pattern::Is op(const char* name) {
  return [name](const Graph&, const Morphism& m) { return m.op == name; };
}

// y = gelu(x) + tanh(gelu(x)), and z = gelu(x) twice.
constexpr std::string_view kCalls = R"s(scheme:
  input %0 x: f32[b=2]
  %1 g: f32[b=2] = gelu(%0) @g
  %2 t: f32[b=2] = tanh(%1) @t
  %3 y: f32[b=2] = add(%1, %2) @y
  %4 h: f32[b=2] = gelu(%0) @h
  %5 z: f32[b=2] = add(%4, %4) @z
  return %3, %5
)s";
constexpr int kGelu = 0, kTanh = 1, kSum = 2, kTwice = 4;

TEST(Pattern, OperandsAreMetInAnyOrder) {
  const Scheme scheme = parse_scheme(kCalls);
  const Graph graph(scheme);
  const Pattern pattern = {
      op("add"),
      {{.made_by = {op("tanh"), {{.made_by = {op("gelu")}}}}}, {.made_by = {op("gelu")}}}};
  EXPECT_EQ(match(graph, pattern, kSum), (Match{kSum, kTanh, kGelu, kGelu}));
  EXPECT_EQ(match(graph, pattern, kTwice), std::nullopt);
  EXPECT_EQ(match(graph, pattern, kTanh), std::nullopt);
}

TEST(Pattern, OnlyMeansReadOnceAndByNobodyElse) {
  const Scheme scheme = parse_scheme(kCalls);
  const Graph graph(scheme);
  const Pattern any = {op("add"), {{.made_by = {op("gelu")}}}};
  const Pattern only = {op("add"), {{.made_by = {op("gelu")}, .only = true}}};
  EXPECT_TRUE(match(graph, any, kSum));
  EXPECT_FALSE(match(graph, only, kSum));
  EXPECT_TRUE(match(graph, any, kTwice));
  EXPECT_FALSE(match(graph, only, kTwice));
}

TEST(Pattern, LooksThroughWhatMakesNoDifference) {
  const Scheme scheme = parse_scheme(kCalls);
  const Graph graph(scheme);
  const Pattern through = {op("add"),
                           {{.made_by = {[](const Graph& g, const Morphism& m) {
                               return m.op == "gelu" && g.maker(m.inputs[0]) < 0;
                             }},
                             .through = op("tanh")},
                            {.made_by = {op("gelu")}, .through = op("tanh")}}};
  EXPECT_EQ(match(graph, through, kSum), (Match{kSum, kGelu, kGelu}));
}

// A loss's log-sums are its third result; `fits` is asked where the call reads it.
TEST(Pattern, ReadsTheResultThatItNamesWhereItFits) {
  const Scheme scheme = parse_scheme(R"s(scheme:
  input %0 x: f32[b=2, v=5]
  input %1 t: i32[b=2]
  control %2 scale: f32[]
  %3 loss: f32[] metric, %4 loss.count: f32[] metric, %5 loss.lse: f32[b=2] = cross_entropy(%0, %1) {ignore=-1} @loss
  %6 g: f32[b=2, v=5] = cross_entropy_grad(%0, %1, %5, %2) {ignore=-1} @g
  %7 twice: f32[] = add(%3, %4) @twice
  return %6, %7
)s");
  const Graph graph(scheme);
  const auto any = [](const Graph&, const Morphism&) { return true; };
  Pattern pattern = {any, {{.made_by = {op("cross_entropy")}, .result = 2}}};
  EXPECT_EQ(match(graph, pattern, 1), (Match{1, 0}));
  EXPECT_EQ(match(graph, pattern, 2), std::nullopt);  // it reads results 0 and 1
  pattern.operands[0].fits = [](const Graph&, const Morphism& reader, Value read) {
    return reader.inputs[2] == read;
  };
  EXPECT_TRUE(match(graph, pattern, 1));
  pattern.operands[0].fits = [](const Graph&, const Morphism& reader, Value read) {
    return reader.inputs[0] == read;
  };
  EXPECT_FALSE(match(graph, pattern, 1));
}

TEST(Pattern, CallsJoinOnceAndWhereTheyMay) {
  Scheme scheme = parse_scheme(kCalls);
  const Pattern pattern = {[](const Graph&, const Morphism& m) { return m.op != "gelu"; },
                           {{.made_by = {op("gelu")}}}};
  // The sum would take the gelu that tanh has taken.
  EXPECT_EQ(find_joins(Graph(scheme), pattern), (std::vector<Match>{{kTanh, kGelu}, {4, 3}}));
  scheme.morphisms[kTanh].epoch = 1;
  EXPECT_EQ(find_joins(Graph(scheme), pattern), (std::vector<Match>{{kSum, kGelu}, {4, 3}}));
}

}  // namespace
}  // namespace adjoint
