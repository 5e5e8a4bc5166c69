// Traces are JSON that Perfetto takes: events of a track do not overlap, counters say live bytes.
#include "report/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "report/planned.h"
#include "report/timeline.h"

namespace adjoint {
namespace {

nlohmann::json events_of(const Planned& p, const std::vector<double>& seconds = {}) {
  return nlohmann::json::parse(
      chrome_trace(p.scheme, p.plan, {.title = "t", .seconds = seconds}))["traceEvents"];
}

TEST(Trace, EventsDoNotOverlapWithinATrack) {
  for (const Case& c : cases()) {
    const Planned p = planned(c.preset, c.stack, c.clip);
    // Times that no decimal says exactly.
    std::vector<double> seconds;
    for (size_t i = 0; i < p.plan.calls.size(); ++i) {
      seconds.push_back(1e-7 * static_cast<double>(1 + i % 13) / 3);
    }
    std::map<int, double> free;
    std::vector<std::tuple<int, double, double>> sorted;  // track, start, duration
    size_t calls = 0;
    for (const auto& e : events_of(p, seconds)) {
      if (e["ph"] != "X") continue;
      calls += e["tid"] == 3 || e["tid"] == 4;
      sorted.emplace_back(e["tid"], e["ts"], e["dur"]);
    }
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [track, start, duration] : sorted) {
      EXPECT_GE(duration, 0) << said(c);
      // Viewers count in whole nanoseconds.
      EXPECT_GE(std::llround(1000 * start), std::llround(1000 * free[track])) << said(c);
      free[track] = start + duration;
    }
    size_t expected = 0;
    for (int at = 0; at < static_cast<int>(p.plan.calls.size()); ++at) {
      const bool body = at >= p.plan.body_begin && at < p.plan.body_end;
      if (!p.plan.calls[at].is_view) expected += body ? p.scheme.parts : 1;
    }
    EXPECT_EQ(calls, expected) << said(c);
  }
}

// On a GPU each direction has its own, and copies run beside the work.
TEST(Trace, CopiesOfAGpuRunBesideTheWork) {
  for (const char* stack : {"offload(parameters)", "offload(activations) | accumulate(2)"}) {
    const Scheme forward =
        elaborate_preset("char", {{"layers", 3}, {"hidden", 32}, {"batch", 4}, {"seq", 16}});
    Planned p{training_step(forward, {.stack = stack, .target = Target::kCuda}), {}};
    p.plan = make_plan(p.scheme, {.threads = 1, .target = Target::kCuda});
    std::map<int, double> free;
    std::vector<std::tuple<int, double, double>> sorted;
    double sum = 0, last = 0;
    for (const auto& e : events_of(p)) {
      if (e["ph"] != "X") continue;
      sorted.emplace_back(e["tid"], e["ts"], e["dur"]);
      if (e["tid"] < 3) continue;
      EXPECT_EQ(e["tid"] > 3, e["name"] == "move") << e;
      if (e["name"] == "move") {
        EXPECT_EQ(e["tid"] == 5,
                  e["args"]["source"].get<std::string>().find("fetched") == std::string::npos)
            << e;
      }
      sum += e["dur"].get<double>();
      last = std::max(last, e["ts"].get<double>() + e["dur"].get<double>());
    }
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [track, start, duration] : sorted) {
      EXPECT_GE(std::llround(1000 * start), std::llround(1000 * free[track])) << stack;
      free[track] = start + duration;
    }
    EXPECT_LT(last, 0.95 * sum) << stack;
    EXPECT_GE(last, free[3]) << stack;
  }
}

// On every target, whether or not there are copies.
TEST(Trace, CollectivesRunBesideTheWork) {
  for (const Target target : {Target::kCpu, Target::kCuda}) {
    const Scheme forward =
        elaborate_preset("char", {{"layers", 3}, {"hidden", 32}, {"batch", 4}, {"seq", 16}});
    StepOptions options;
    options.stack = "data_parallel(2)";
    options.target = target;
    options.on_mesh = true;
    Planned p{build_step(forward, parse_stack(options.stack), options).scheme, {}};
    p.plan = make_plan(p.scheme, {.threads = 1, .target = target});
    double work = 0, collectives = 0, last = 0, free = 0;
    for (const auto& e : events_of(p)) {
      if (e["ph"] != "X" || e["tid"] < 3) continue;
      const double from = e["ts"], seconds = e["dur"];
      last = std::max(last, from + seconds);
      if (e["tid"] != 6) {
        EXPECT_EQ(e["tid"], 3) << e;
        work += seconds;
        continue;
      }
      EXPECT_GE(std::llround(1000 * from), std::llround(1000 * free)) << e;
      free = from + seconds;
      collectives += seconds;
    }
    EXPECT_GT(collectives, 0);
    EXPECT_LT(last, work + collectives - 1e-3);
  }
}

TEST(Trace, CopiesHaveATrackOfTheirOwn) {
  const Planned p = planned("char", "offload(optimizer)");
  size_t copies = 0;
  for (const auto& e : events_of(p)) {
    if (e["ph"] != "X" || e["cat"] == "phase" || e["cat"] == "block") continue;
    EXPECT_EQ(e["tid"] == 4, e["name"] == "move");
    copies += e["tid"] == 4;
  }
  EXPECT_GT(copies, 0u);
}

TEST(Trace, CountersReachThePeak) {
  for (const Case& c : cases()) {
    const Planned p = planned(c.preset, c.stack, c.clip);
    std::map<std::string, int64_t> most;
    for (const auto& e : events_of(p)) {
      if (e["ph"] != "C") continue;
      int64_t sum = 0;
      for (const auto& [name, bytes] : e["args"].items()) sum += bytes.get<int64_t>();
      int64_t& here = most[e["name"]];
      here = std::max(here, sum);
    }
    EXPECT_EQ(most["memory"], p.plan.live_peak.count) << said(c);
    EXPECT_EQ(most["memory total"], p.plan.live_peak.count) << said(c);
    EXPECT_EQ(most.count("host memory"), p.plan.host.size.count > 0 ? 1u : 0u) << said(c);
    EXPECT_EQ(most["host memory"], p.plan.host.live_peak.count) << said(c);
  }
}

TEST(Trace, SaysWhatRanAndSurvivesHostileNames) {
  Planned p = planned(parse_scheme(R"(scheme:
  input %0 x: f32[n=16]
  %1 y: f32[n=16] = add(%0, %0) @block[0].add#1
  return %1
)"));
  p.scheme.morphisms[0].source.path = "a\"\\\xff\n</script>";
  const auto events = events_of(p, {2e-6});
  const auto add =
      std::find_if(events.begin(), events.end(), [](const auto& e) { return e["name"] == "add"; });
  ASSERT_NE(add, events.end());
  EXPECT_EQ((*add)["dur"], 2.0);
  EXPECT_EQ((*add)["args"]["flops"], 16);
  EXPECT_EQ((*add)["args"]["outputs"][0], "f32[n=16]");
}

}  // namespace
}  // namespace adjoint
