// Pictures are well-formed, small, hold what they must, and survive hostile names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error_text.h"
#include "report/memory_chart.h"
#include "report/pareto_chart.h"
#include "report/planned.h"
#include "report/scale.h"
#include "report/svg.h"
#include "report/xml.h"

namespace adjoint {
namespace {

constexpr double kPlot = 300;  // pixels from the bottom to the top of a plot (memory_chart.cpp)

// How high an element named `what` is: the highest point of its path above its beginning at the
// bottom of the plot, from its relative steps.
double height_of(const std::string& svg, const std::string& what) {
  const size_t title = svg.find("<title>" + what + "</title></path>");
  if (title == std::string::npos) return NAN;
  const size_t begin = svg.rfind(" d=\"M", title) + 5;
  const std::string d = svg.substr(begin, svg.find('"', begin) - begin);
  double y = 0, most = 0;
  for (size_t at = 0; (at = d.find('v', at)) != std::string::npos;) {
    y -= std::stod(d.substr(++at));
    most = std::max(most, y);
  }
  return most;
}

TEST(Xml, TheCheckerSeesMistakes) {
  EXPECT_EQ(xml_mistake("<a x=\"1\"><b/>t &amp; u</a>\n"), "");
  for (const char* wrong : {"<a><b></a>", "<a>", "<a/>b", "<a>&b</a>", "<a x=\"<\"></a>", "a",
                            "<a></a><b></b>", "<a>\x01</a>", "<a>></a>"}) {
    EXPECT_NE(xml_mistake(wrong), "") << wrong;
  }
}

TEST(Svg, EscapesAndShortens) {
  EXPECT_EQ(xml_escape("a<b>&\"'c"), "a&lt;b&gt;&amp;&quot;&#39;c");
  EXPECT_EQ(xml_escape("\x01\xff\xc3\xa9\xed\xa0\x80"),
            "\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(short_number(3), "3");
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(-0.001), "0");
  EXPECT_EQ(short_number(10.5), "10.5");
}

TEST(Scale, HasRoundTicksInTheUnitThatFits) {
  const auto labels = [](const Scale& s) {
    std::vector<std::string> found;
    for (const Tick& t : s.ticks) found.push_back(t.label);
    return found;
  };
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels(bytes_scale(0, 5.5 * (1 << 30), 6)),
            (Labels{"0", "1 GiB", "2 GiB", "3 GiB", "4 GiB", "5 GiB"}));
  EXPECT_EQ(labels(bytes_scale(0, 3, 8)), (Labels{"0", "1 B", "2 B", "3 B"}));
  EXPECT_EQ(labels(bytes_scale(0, 1.1 * (1 << 20), 6)),
            (Labels{"0", "0.2 MiB", "0.4 MiB", "0.6 MiB", "0.8 MiB", "1.0 MiB"}));
  EXPECT_EQ(labels(seconds_scale(0, 0.1, 5)),
            (Labels{"0", "20 ms", "40 ms", "60 ms", "80 ms", "100 ms"}));
  EXPECT_EQ(labels(count_scale(0, 2, 8)), (Labels{"0", "1", "2"}));
  EXPECT_EQ(labels(times_scale(0.99, 1.12, 3)), (Labels{"1.00x", "1.05x", "1.10x"}));
  EXPECT_EQ(labels(times_scale(0.5, 4.2, 4)), (Labels{"1x", "2x", "3x", "4x"}));
  EXPECT_EQ(labels(share_scale(0.3, 1.02, 4)), (Labels{"40%", "60%", "80%", "100%"}));
  EXPECT_FALSE(bytes_scale(0, 0, 6).ticks.empty());
}

TEST(MemoryChart, IsWellFormedForEveryCase) {
  for (const Case& c : cases()) {
    const Planned p = planned(c.preset, c.stack, c.clip);
    const std::string svg =
        memory_chart(chart_of("model", "subtitle", {{c.stack, p.scheme, p.plan}}));
    EXPECT_EQ(xml_mistake(svg), "") << said(c);
    EXPECT_TRUE(has(svg, "peak " + human(p.plan.live_peak))) << said(c);
    EXPECT_EQ(has(svg, "host, "), p.plan.host.size.count > 0) << said(c);
    for (const char* phase : {"forward", "backward", "update"}) {
      EXPECT_TRUE(has(svg, std::string("<title>") + phase + "</title></rect>")) << said(c);
    }
  }
}

// Layers from the bottom up, and the highest of them reaches the peak of the axis.
TEST(MemoryChart, StacksStateBelowWhatComesAndGoes) {
  const Planned p = planned("char", "");
  const std::string svg = memory_chart(chart_of("model", "", {{"plain", p.scheme, p.plan}}));
  std::vector<double> tops;
  for (const char* layer :
       {"parameters", "optimizer state", "other", "gradients", "activations", "workspace"}) {
    tops.push_back(height_of(svg, layer));
  }
  EXPECT_TRUE(std::is_sorted(tops.begin(), tops.end()));
  const double bytes_per_pixel = kHeadroom * static_cast<double>(p.plan.arena.count) / kPlot;
  EXPECT_NEAR(tops.back() * bytes_per_pixel, static_cast<double>(p.plan.live_peak.count),
              0.1 * bytes_per_pixel);
}

// One call among thousands, a thousandth of a pixel wide, holds the peak: it is drawn.
TEST(MemoryChart, KeepsTheHighestOfAllCallsOfAPixelAndStaysSmall) {
  Timeline t{.live = {}, .peak = {1000}, .peak_at = 12345};
  for (int i = 0; i < 40000; ++i) {
    CategoryBytes live = {};
    live[0] = 100;
    live[3] = i == 12345 ? 900 : 100 + i % 7 * 50;
    t.live.push_back(live);
    const double from = i, to = i + 1;
    t.moments.push_back({.place = i, .begins = from, .ends = to, .from = from, .to = to});
    t.copies.push_back(CopyWay::kNone);
    t.kinds.push_back(i % 3 ? Kind::kBackward : Kind::kRecomputation);
  }
  t.arena = {1000};
  t.phases = {{0, 39999, "backward"}};
  t.sections = {{0, 39999, "step"}};
  const std::string one = memory_chart({.title = "long", .rows = {{{"a", t}}}});
  EXPECT_LT(one.size(), 100'000u);
  EXPECT_NEAR(height_of(one, "activations"), kPlot / kHeadroom, 0.11);
  const std::string four =
      memory_chart({.title = "long", .rows = {{{"a", t}, {"b", t}}, {{"a", t}, {"b", t}}}});
  EXPECT_LT(four.size(), 200'000u);
  EXPECT_EQ(xml_mistake(four), "");
}

TEST(MemoryChart, PutsTwoStacksOnOneAxis) {
  const Planned a = planned("char", ""), b = planned("char", "checkpoint(block)");
  ASSERT_LT(b.plan.live_peak, a.plan.live_peak);
  const std::string svg = memory_chart(
      chart_of("model", "", {{"plain", a.scheme, a.plan}, {"checkpoint", b.scheme, b.plan}}));
  EXPECT_EQ(xml_mistake(svg), "");
  // The second stack reaches lower, by the ratio of the peaks.
  const double first = height_of(svg, "workspace");  // the layer on top of all
  const double second = height_of(svg.substr(svg.rfind("B: checkpoint")), "workspace");
  EXPECT_NEAR(
      second / first,
      static_cast<double>(b.plan.live_peak.count) / static_cast<double>(a.plan.live_peak.count),
      0.01);
  EXPECT_TRUE(has(svg, "A: plain") && has(svg, "B: checkpoint"));
  EXPECT_TRUE(has(svg, ">" + human(a.plan.live_peak) + "<") || has(svg, human(a.plan.live_peak)));
}

TEST(MemoryChart, SurvivesHostileNamesAndTinySchemes) {
  const std::string evil = "</title><script>alert(1)</script>&\"'\xff\x02";
  const Planned p = planned(parse_scheme(R"(scheme:
  input %0 x: f32[n=16]
  %1 y: f32[n=16] = gelu(%0) @y
  return %1
)"));
  Planned named = p;
  named.scheme.morphisms[0].source.path = evil;
  const std::string svg = memory_chart(chart_of(evil, evil, {{evil, named.scheme, named.plan}}));
  EXPECT_EQ(xml_mistake(svg), "");
  EXPECT_FALSE(has(svg, "<script"));
  const Planned none = planned(parse_scheme("scheme:\n  input %0 x: f32[n=16]\n  return %0\n"));
  EXPECT_EQ(xml_mistake(memory_chart(chart_of("none", "", {{"", none.scheme, none.plan}}))), "");
  EXPECT_EQ(
      xml_mistake(pareto_chart(
          {.title = evil, .points = {{{1 << 20}, 0.5, evil, true}}, .budget = Bytes{1 << 21}})),
      "");
}

TEST(ParetoChart, KnowsWhatIsDominated) {
  const std::vector<ParetoPoint> points = {{{100}, 1.0, "a"},  // fastest
                                           {{50}, 2.0, "b"},   // smallest
                                           {{60}, 2.0, "c"},   // b is smaller and as fast
                                           {{70}, 1.5, "d"},   // between
                                           {{70}, 1.5, "e"},   // d once more
                                           {{110}, 1.0, "f"}};
  EXPECT_EQ(dominated(points), (std::vector<bool>{false, false, true, false, true, true}));
}

TEST(ParetoChart, ListsEveryPointAndTheBudget) {
  ParetoChart chart{.title = "gpt2", .points = {}, .budget = Bytes{int64_t{3} << 30}};
  for (int i = 0; i < 24; ++i) {
    chart.points.push_back({{(int64_t{1} << 30) + i * (int64_t{1} << 27)},
                            1.0 - 0.02 * i,
                            "choice " + std::to_string(i),
                            i == 9});
  }
  const std::string svg = pareto_chart(chart);
  EXPECT_EQ(xml_mistake(svg), "");
  for (int i = 0; i < 24; ++i) EXPECT_TRUE(has(svg, ">choice " + std::to_string(i)));
  EXPECT_TRUE(has(svg, "choice 9 (chosen)"));
  EXPECT_TRUE(has(svg, "budget 3.00 GiB"));
  EXPECT_EQ(xml_mistake(pareto_chart({.title = "empty"})), "");
}

}  // namespace
}  // namespace adjoint
