// The profile's page: colours of tables are those of charts, small rows are folded, and it can be
// read on a phone and in the dark.
#include "report/profile_page.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "report/memory_chart.h"
#include "report/palette.h"
#include "report/planned.h"
#include "report/step_times.h"

namespace adjoint {
namespace {

std::string page_of(const Planned& p, std::vector<double> seconds) {
  const std::string chart =
      memory_chart(chart_of("t", "s", {{"plain", p.scheme, p.plan, seconds, "measured"}}));
  const Profile profile{
      .step = {.model = "char <&>",
               .fingerprint = "",
               .title = "char",
               .batch = 4,
               .context = 16,
               .stack = "",
               .optimizer = "adamw"},
      .scheme = p.scheme,
      .plan = p.plan,
      .measured = {.touched = p.plan.arena, .step_seconds = 1, .call_seconds = seconds},
      .peak = {}};
  return profile_page(profile, {{"Memory over the step", chart}});
}

// What stands between `from`, searched after `at`, and `to`.
std::string between(const std::string& text, const std::string& from, const std::string& to,
                    size_t at = 0) {
  const size_t begin = text.find(from, at);
  if (begin == std::string::npos) return "";
  return text.substr(begin + from.size(), text.find(to, begin) - begin - from.size());
}

TEST(ProfilePage, AColourMeansTheSameInTablesAndCharts) {
  const Planned p = planned("char", "checkpoint(block)");
  const std::string page = page_of(p, std::vector<double>(p.plan.calls.size(), 1e-3));
  for (int c = 0; c < kNumCategories; ++c) {
    if (p.plan.at_peak(Tier::kDevice)[c].count == 0) continue;
    const auto category = static_cast<Category>(c);
    const std::string tone(shades_of(tone_of(category)).name);
    const std::string row =
        between(page, "<tr><td>" + std::string(name(category)) + "</td>", "</tr>");
    EXPECT_TRUE(has(row, "background:var(--" + tone + ")")) << name(category);
    EXPECT_TRUE(has(page, "class=\"f-" + tone + "\"><title>" + std::string(name(category))))
        << tone;
  }
  for (const Kind kind : {Kind::kForward, Kind::kBackward, Kind::kUpdate}) {
    const std::string tone(shades_of(tone_of(kind)).name);
    EXPECT_TRUE(has(page, "background:var(--" + tone + ")\"></i>" + std::string(name(kind))))
        << tone;
    EXPECT_TRUE(has(page, "class=\"f-" + tone + "\"><title>" + std::string(name(kind)))) << tone;
  }
  EXPECT_TRUE(has(page, "class=recomputation></i>recomputation"));
}

TEST(ProfilePage, FoldsSmallRowsAndSaysWhatTheyAre) {
  const Planned p = planned("char", "");
  // One op takes nearly all the time.
  std::vector<double> seconds;
  for (const PlannedCall& call : p.plan.calls) {
    const std::string& op = p.scheme.morphisms[call.morphism].op;
    seconds.push_back(call.is_view ? 0 : op == "contract" ? 1.0 : 1e-5);
  }
  const std::string page = page_of(p, seconds);
  const size_t by_op = page.find("<h2>Time by op</h2>");
  ASSERT_NE(by_op, std::string::npos);
  const TimeRow step = time_of_step(p.scheme, p.plan, seconds);
  int small = 0;
  double together = 0;
  for (const TimeRow& row : time_by_op(p.scheme, p.plan, seconds)) {
    const double share = row.total_seconds() / step.total_seconds();
    if (share >= 0.01) continue;
    ++small, together += share;
  }
  ASSERT_GT(small, 2);
  EXPECT_EQ(between(page, "<summary>", "</summary>", by_op),
            fmt::format("{} more, {:.1f}% together", small, 100 * together));
  // What is large is in sight.
  const std::string shown = between(page, "<h2>Time by op</h2>", "<details>");
  EXPECT_TRUE(has(shown, "<td>contract</td>"));
  const std::string even = page_of(p, std::vector<double>(p.plan.calls.size(), 1e-3));
  EXPECT_TRUE(has(even, "char &lt;&amp;&gt;"));
}

TEST(ProfilePage, CanBeReadOnAPhoneAndInTheDark) {
  const Planned p = planned("char", "");
  const std::string page = page_of(p, std::vector<double>(p.plan.calls.size(), 1e-3));
  EXPECT_TRUE(has(page, "<meta name=viewport content=\"width=device-width, initial-scale=1\">"));
  EXPECT_TRUE(has(page, "figure { margin: 0 0 20px; overflow-x: auto; }"));
  EXPECT_TRUE(has(page, "@media (max-width: 760px)"));
  EXPECT_TRUE(has(page, "@media screen and (prefers-color-scheme: dark) { :root {"));
  // The page itself names no colour: all are the palette's, which has both shades.
  std::string own = page;
  for (size_t at = own.find("<svg"); at != std::string::npos; at = own.find("<svg")) {
    own.erase(at, own.find("</svg>") + 6 - at);
  }
  own = own.substr(own.find("* { box-sizing"));
  EXPECT_EQ(own.find("#"), own.find("#1")) << "a colour, not the name of a tensor such as gelu#1";
}

}  // namespace
}  // namespace adjoint
