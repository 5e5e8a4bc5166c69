// The picture of a schedule: well-formed, every slot where its time is, bubbles and bytes drawn,
// small for long steps.
#include "report/schedule_chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/error_text.h"
#include "base/file.h"
#include "report/palette.h"
#include "report/xml.h"

namespace adjoint {
namespace {

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

SlotTimes with_bytes(SlotTimes times) {
  times.kept.assign(times.forward.size(), 3 << 20);
  times.kept_for_weights.assign(times.forward.size(), 1 << 20);
  return times;
}

// Attribute `name` of the rectangle whose hint begins with `hint`.
double attribute(const std::string& svg, const std::string& hint, const std::string& name) {
  const size_t title = svg.find("<title>" + hint);
  if (title == std::string::npos) return NAN;
  const size_t begin = svg.rfind("<rect", title);
  const size_t at = svg.find(" " + name + "=\"", begin) + name.size() + 3;
  return std::stod(svg.substr(at));
}

TEST(ScheduleChart, ShowsEverySlotAtItsTime) {
  for (const std::string& name : schedule_names()) {
    const int v = name == "interleaved" ? 2 : 1;
    const Schedule schedule = make_schedule(name, 3, 6, v);
    SlotTimes times = with_bytes(equal_times(3 * v, 0.01, 0.01, 0.01, 0.001));
    times.update = 0.005;
    times.barrier = true;
    const Simulated simulated = simulate(schedule, times);
    const std::string svg = schedule_chart(schedule, simulated, "a < b", "\"&\"");
    EXPECT_EQ(xml_mistake(svg), "") << name;
    EXPECT_EQ(count(svg, "<title>forward of part"), 18 * v) << name;
    EXPECT_EQ(count(svg, "<title>backward of part"), 18 * v) << name;
    const bool apart = name == "zero_bubble" || name == "zb_h2";
    EXPECT_EQ(count(svg, "<title>weights&#39; gradients of part"), apart ? 18 : 0) << name;
    EXPECT_EQ(count(svg, "<title>update</title>"), 3) << name;
    EXPECT_EQ(count(svg, "<title>kept by parts in flight, at most"), 3) << name;
    EXPECT_EQ(count(svg, "waits</title>"), 3) << name;
    EXPECT_TRUE(has(svg, "a &lt; b"));
  }
}

TEST(ScheduleChart, PutsSlotsInProportion) {
  // 1 s forward, 3 s backward on each of two ranks, one part: 8 s over 900 pixels from 64 on.
  const Schedule schedule = make_schedule("gpipe", 2, 1, 1);
  const Simulated simulated = simulate(schedule, equal_times(2, 1, 2, 1));
  const std::string svg = schedule_chart(schedule, simulated, "t", "s");
  EXPECT_NEAR(attribute(svg, "forward of part 0, 0.00 us", "x"), 64, 0.1);
  EXPECT_NEAR(attribute(svg, "forward of part 0, 0.00 us", "width"), 112.5, 0.1);
  EXPECT_NEAR(attribute(svg, "backward of part 0, 2.00 s", "x"), 64 + 225, 0.1);
  EXPECT_NEAR(attribute(svg, "backward of part 0, 2.00 s", "width"), 337.5, 0.1);
  EXPECT_GT(attribute(svg, "backward of part 0, 2.00 s", "y"),
            attribute(svg, "backward of part 0, 5.00 s", "y"));
  EXPECT_TRUE(has(svg, "step 8.00 s, bubble 50.0%"));
  EXPECT_TRUE(has(svg, "1 in flight"));
  EXPECT_FALSE(has(svg, "kept by parts"));  // no bytes are known
}

TEST(ScheduleChart, LaterChunksOfARankAreLower) {
  // Neighbouring chunks on one rank, as a user may have them.
  const Schedule schedule = parse_schedule(
      "schedule s(stages = 2, parts = 1, chunks = 4):\n"
      "  rank 0: F0.0 F0.1 B0.1 B0.0\n"
      "  rank 1: F0.2 F0.3 B0.3 B0.2\n",
      "s");
  const std::string svg =
      schedule_chart(schedule, simulate(schedule, equal_times(4, 1, 1, 1)), "t", "s");
  // Both have the colour of their kind, and the second chunk of each rank half the height.
  const std::string forward(shades_of(Tone::kForward).light);
  EXPECT_EQ(count(svg, "height=\"20\" fill=\"" + forward + "\" stroke"), 2);
  EXPECT_EQ(count(svg, "height=\"10\" fill=\"" + forward + "\" stroke"), 2);
  EXPECT_TRUE(has(svg, "lower: a later chunk of the rank"));
}

// docs/figures/schedules.svg is what we draw today. ADJOINT_WRITE_FIGURES=1 writes it.
TEST(ScheduleChart, TheFigureOfTheDocument) {
  const SlotTimes times = with_bytes(equal_times(4, 0.01, 0.01, 0.01));
  const Schedule one = make_schedule("1f1b", 4, 6, 1), two = make_schedule("zb_h2", 4, 6, 1);
  const Simulated first = simulate(one, times), second = simulate(two, times);
  const std::string svg =
      schedule_chart({{"1f1b", &one, &first}, {"zb_h2", &two, &second}}, "4 ranks, 6 parts",
                     "every kind of slot takes 10 ms, messages take no time; 3 MiB are kept per "
                     "part, and 1 MiB until its weights' gradients");
  const std::string file = std::string(SOURCE_DIR) + "/docs/figures/schedules.svg";
  if (std::getenv("ADJOINT_WRITE_FIGURES")) std::ofstream(file) << svg;
  EXPECT_TRUE(read_file(file) == svg) << "ADJOINT_WRITE_FIGURES=1 writes " << file;
}

TEST(ScheduleChart, LongStepsAreSmallAndShowShares) {
  const Schedule schedule = make_schedule("zero_bubble", 16, 512, 1);
  const Simulated simulated = simulate(schedule, with_bytes(equal_times(16, 1, 1, 1, 0.1)));
  const std::string svg = schedule_chart(schedule, simulated, "t", "s");
  EXPECT_EQ(xml_mistake(svg), "");
  EXPECT_LT(svg.size(), 100'000u);
  EXPECT_EQ(count(svg, "<title>forward, as a share of the time"), 16);
  EXPECT_TRUE(has(svg, "heights are shares of the time"));
}

TEST(ScheduleChart, PanelsShareTheirScales) {
  const Schedule schedule = make_schedule("1f1b", 2, 2, 1);
  const Simulated fast = simulate(schedule, with_bytes(equal_times(2, 1, 1, 1)));
  const Simulated slow = simulate(schedule, with_bytes(equal_times(2, 2, 2, 2)));
  const std::string svg =
      schedule_chart({{"predicted", &schedule, &fast}, {"measured", &schedule, &slow}}, "t", "s");
  EXPECT_EQ(xml_mistake(svg), "");
  EXPECT_TRUE(has(svg, ">predicted<") && has(svg, ">measured<"));
  EXPECT_NEAR(2 * attribute(svg, "forward of part 0, 0.00 us to 1.00 s", "width"),
              attribute(svg, "forward of part 0, 0.00 us to 2.00 s", "width"), 0.05);
}

}  // namespace
}  // namespace adjoint
