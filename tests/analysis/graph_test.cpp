// Who makes, reads and holds what, on small schemes; and which calls may become one.
#include "analysis/graph.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace adjoint {
namespace {

Value at(const Scheme& scheme, const char* path) {
  const auto found = scheme.find({path});
  EXPECT_TRUE(found) << path;
  return found.value_or(0);
}
int call_at(const Graph& graph, const char* path) { return graph.maker(at(graph.scheme(), path)); }

// A step that reads a weight through a view and through a join, and then writes it.
constexpr std::string_view kStep = R"s(scheme:
  input %0 x: f32[b=2, h=4]
  parameter %1 w: f32[o=6, h=4]
  parameter %2 u: f32[o=2, h=4]
  %3 seen: f32[o=6, parts=2, h=2] = split(%1) {parts=2} @seen
  %4 part: f32[o=6, parts=2, h=2] = scale(%3) {by=2.0} @part
  %5 both: f32[o=8, h=4] = concat(%1, %2) @both
  %6 y: f32[b=2, o=8] = linear(%0, %5) @y
  %7 new: f32[o=6, h=4] = scale(%1) {by=0.5} @new
  return %4, %6
  carry %1 -> %7
)s";

TEST(Graph, MakersReadersAndViews) {
  const Scheme scheme = parse_scheme(kStep);
  const Graph graph(scheme);
  const Value w = at(scheme, "w"), seen = at(scheme, "seen");
  EXPECT_EQ(graph.maker(w), -1);
  EXPECT_EQ(graph.readers(w), (std::vector<int>{call_at(graph, "seen"), call_at(graph, "both"),
                                                call_at(graph, "new")}));
  EXPECT_EQ(graph.root(seen), w);
  EXPECT_EQ(graph.views(w), std::vector<Value>{seen});
  EXPECT_EQ(graph.viewed(at(scheme, "part")), -1);
  EXPECT_EQ(graph.only_reader(seen), call_at(graph, "part"));
  EXPECT_EQ(graph.only_reader(at(scheme, "part")), std::nullopt);  // it leaves the step
  EXPECT_EQ(graph.only_reader(w), std::nullopt);
}

// Who writes state runs after all that read it, seen through a view or a join too.
TEST(Graph, AWriterIsHeldByReadersOfTheOldState) {
  const Scheme scheme = parse_scheme(kStep);
  const Graph graph(scheme);
  EXPECT_EQ(graph.state_of(at(scheme, "new")), at(scheme, "w"));
  std::vector<int> held = graph.held_by(call_at(graph, "new"));
  std::sort(held.begin(), held.end());
  EXPECT_EQ(held, (std::vector<int>{call_at(graph, "seen"), call_at(graph, "part"),
                                    call_at(graph, "both"), call_at(graph, "y")}));
  EXPECT_EQ(graph.holds(call_at(graph, "y")), std::vector<int>{call_at(graph, "new")});
}

TEST(Graph, BeforeFollowsDataAndWhatHoldsBack) {
  Scheme scheme = parse_scheme(kStep);
  const int y = 3, part = 1, both = 2;
  scheme.morphisms[y].after = {at(scheme, "part")};
  const Graph graph(scheme);
  const Before before(graph, {part, both});
  EXPECT_TRUE(before.has(0, y));
  EXPECT_TRUE(before.has(1, y));
  EXPECT_FALSE(before.has(1, part));
  EXPECT_EQ(graph.held_by(y), std::vector<int>{part});
}

// Each difference alone keeps two calls apart.
TEST(MayJoin, AsksForSectionEpochTierStageAndPlacement) {
  const Scheme scheme = parse_scheme(kStep);
  const auto may = [](const Scheme& s, Recomputed recomputed = Recomputed::kStaysApart) {
    return may_join(s, s.morphisms[1], s.morphisms[3], recomputed);
  };
  EXPECT_TRUE(may(scheme));
  const auto but = [&](auto change) {
    Scheme other = scheme;
    change(other.morphisms[1], other[other.morphisms[1].outputs[0]].attributes);
    return other;
  };
  EXPECT_FALSE(may(but([](Morphism& m, Attributes&) { m.section = Section::kEpilogue; })));
  EXPECT_FALSE(may(but([](Morphism&, Attributes& a) { a.tier = Tier::kHost; })));
  EXPECT_FALSE(may(but([](Morphism&, Attributes& a) { a.stage = 1; })));
  EXPECT_FALSE(may(but([](Morphism&, Attributes& a) {
    a.placement = {{.mesh_axis = "data", .spread = Spread::kSharded}};
  })));
  const Scheme recomputed = but([](Morphism& m, Attributes&) { m.epoch = 1; });
  EXPECT_FALSE(may(recomputed));
  EXPECT_TRUE(may(recomputed, Recomputed::kMayJoin));
  EXPECT_FALSE(may_join(recomputed, recomputed.morphisms[3], recomputed.morphisms[1],
                        Recomputed::kMayJoin));  // a gradient does not join a recomputation
}

}  // namespace
}  // namespace adjoint
