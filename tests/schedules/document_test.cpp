// docs/schedules.md: its example is a schedule, and every row of its tables of simulated figures is
// what the simulator gives today. A row that is not in the document is printed by the failing test,
// as it has to be.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "schedules/automatic.h"

namespace adjoint {
namespace {

std::string document() { return read_file(std::string(SOURCE_DIR) + "/docs/schedules.md"); }

void expect_row(const std::string& row) {
  static const std::string text = document();
  EXPECT_NE(text.find("\n" + row + "\n"), std::string::npos) << "no row\n" << row;
}

std::string percent(double share) { return fmt::format("{:.2f}%", 100 * share); }

TEST(ScheduleDocument, ItsExampleIsASchedule) {
  const std::string text = document();
  const size_t begin = text.find("schedule mine("), end = text.find("```", begin);
  ASSERT_NE(end, std::string::npos);
  const Schedule mine = parse_schedule(text.substr(begin, end - begin), "docs/schedules.md");
  EXPECT_EQ(mine.lists, make_schedule("1f1b", 2, 4, 1).lists);
}

// A row per schedule: 4 ranks, 8 parts, every kind of slot one unit, a part's activations one unit,
// half of them kept for the weights.
TEST(ScheduleDocument, SchedulesInUnitTimes) {
  const auto row = [](const std::string& label, const Schedule& schedule, SlotTimes times) {
    const int each = schedule.chunks / schedule.ranks;
    times.kept.assign(static_cast<size_t>(schedule.chunks), 120 / each);
    times.kept_for_weights.assign(static_cast<size_t>(schedule.chunks), 60 / each);
    const Simulated s = simulate(schedule, times);
    std::string list;
    for (const SimulatedRank& rank : s.ranks) {
      list += (list.empty() ? "" : ", ") + fmt::format("{:.4g}", rank.most_bytes / 120.0);
    }
    expect_row(fmt::format("| {} | {:g} | {} | {:g} | {} | {} |", label, s.seconds,
                           percent(s.bubble), s.own_seconds, percent(s.own_bubble), list));
  };
  for (const std::string name : {"gpipe", "1f1b", "zero_bubble", "zb_h2"}) {
    row(name, make_schedule(name, 4, 8, 1), equal_times(4, 1, 1, 1));
  }
  row("interleaved, 2 chunks", make_schedule("interleaved", 4, 8, 2), equal_times(8, .5, .5, .5));
  SlotTimes times = equal_times(4, 1, 1, 1);
  times.kept.assign(4, 2);
  times.kept_for_weights.assign(4, 1);
  row("zb_auto, 4 parts", automatic_zero_bubble(4, 8, times, 4), times);
  row("zb_auto, 8 parts", automatic_zero_bubble(4, 8, times, 8), times);
}

// GPipe's tables 2 and 3: throughput against K=2.
TEST(ScheduleDocument, GPipeThroughput) {
  // Seconds of a batch whose work is 1, in `parts` parts over `ranks` ranks. Backward costs thrice
  // a forward: it recomputes.
  const auto seconds = [](int ranks, int parts) {
    const double slot = 1.0 / ranks / parts / 4;
    return simulate(make_schedule("gpipe", ranks, parts, 1),
                    equal_times(ranks, slot, 2 * slot, slot))
        .seconds;
  };
  const auto row = [&](int ranks, int parts, double published, int base_parts, const char* where) {
    expect_row(fmt::format("| {} | {} | {} | {:g} | {:.2f} |", where, ranks, parts, published,
                           seconds(2, base_parts) / seconds(ranks, parts)));
  };
  row(4, 1, 1.07, 1, "table 2, Transformer-48");
  row(2, 4, 1.7, 1, "table 2, Transformer-48");
  row(2, 32, 1.8, 1, "table 2, Transformer-48");
  row(8, 32, 3.48, 1, "table 2, AmoebaNet-D");
  row(4, 32, 1.8, 32, "table 3, Transformer, P100");
  row(8, 32, 3.3, 32, "table 3, Transformer, P100");
}

struct Profile {
  const char* model;
  int ranks, parts;
  double forward, backward, weight, send;
  int64_t heads, hidden;

  SlotTimes times() const {
    SlotTimes result = equal_times(ranks, forward, backward, weight, send);
    // Table 1: s*b*(34h + 5as) bytes, of which 32*s*b*h wait for the weights' gradients; s = 1024.
    result.kept.assign(static_cast<size_t>(ranks), 34 * hidden + 5 * heads * 1024);
    result.kept_for_weights.assign(static_cast<size_t>(ranks), 32 * hidden);
    return result;
  }
};

TEST(ScheduleDocument, ZeroBubbleRates) {
  const auto row = [](const Profile& p, const char* published_name, double published,
                      const Schedule& schedule, const SlotTimes& times) {
    expect_row(fmt::format("| {}, {} ranks, {} parts | {} | {} | {} | {} |", p.model, p.ranks,
                           p.parts, published_name, schedule.name, percent(published),
                           percent(simulate(schedule, times).own_bubble)));
  };
  const auto by_hand = [&](const Profile& p, const char* name, double published, const char* ours) {
    row(p, name, published, make_schedule(ours, p.ranks, p.parts, 1), p.times());
  };
  const Profile small{"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, 24, 2304};
  by_hand(small, "1F1B", 0.2431, "1f1b");
  by_hand(small, "ZB-H2", 0.1083, "zb_h2");
  const Profile large{"28.3B", 32, 96, 10.419, 10.207, 7.715, 0.408, 48, 6144};
  by_hand(large, "ZB-H1", 0.1421, "zero_bubble");
  by_hand(large, "ZB-H2", 0.0641, "zb_h2");
  const auto searched = [&](const Profile& p, const char* name, double published, int memory) {
    row(p, name, published, automatic_zero_bubble(p.ranks, p.parts, p.times(), memory * p.ranks),
        p.times());
  };
  const Profile profiles[] = {{"1.5B", 8, 32, 18.513, 18.086, 9.331, 0.626, 24, 2304},
                              {"6.2B", 8, 32, 29.802, 29.428, 19.53, 0.577, 32, 4096},
                              {"14.6B", 16, 64, 11.307, 11.254, 8.101, 0.379, 40, 5120},
                              {"28.3B", 32, 128, 10.408, 10.204, 7.703, 0.408, 48, 6144}};
  searched(profiles[2], "ZB-1p", 0.1088, 1);
  const double two_p[] = {0.0039, 0.0022, 0.0054, 0.0029};
  for (size_t i = 0; i < 4; ++i) searched(profiles[i], "ZB-2p", two_p[i], 2);
  const auto interleaved = [&](const Profile& p, double published, int v) {
    const SlotTimes times =
        equal_times(p.ranks * v, p.forward / v, p.backward / v, p.weight / v, p.send);
    row(p, fmt::format("1F1B-I, {} chunks", v).c_str(), published,
        make_schedule("interleaved", p.ranks, p.parts, v), times);
  };
  interleaved(profiles[1], 0.0628, 4);
  interleaved(profiles[2], 0.0852, 3);
  interleaved(large, 0.1493, 2);
}

// What a barrier before the update costs: the paper's table 10 measured throughput with and without
// one.
TEST(ScheduleDocument, Barriers) {
  const auto row = [](const Profile& p, double without, double with) {
    SlotTimes times = p.times();
    const Schedule free = automatic_zero_bubble(p.ranks, p.parts, times, 2 * p.ranks);
    const double own = simulate(free, times).own_seconds;
    times.barrier = true;
    const double same_lists = simulate(free, times).seconds;
    const double least =
        (p.ranks - 1) * (p.forward + p.send) + p.parts * (p.forward + p.backward + p.weight);
    EXPECT_NEAR(same_lists, least, 1e-9 * least);
    expect_row(fmt::format("| {}, {} ranks, {} parts | {} | {} |", p.model, p.ranks, p.parts,
                           percent(without / with - 1), percent(same_lists / own - 1)));
  };
  row({"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, 24, 2304}, 14.5, 13.11);
  row({"6.2B", 8, 24, 29.718, 29.444, 19.927, 0.527, 32, 4096}, 4.32, 4.00);
  row({"14.6B", 16, 48, 11.347, 11.248, 8.132, 0.377, 40, 5120}, 1.81, 1.68);
  row({"28.3B", 32, 96, 10.419, 10.207, 7.715, 0.408, 48, 6144}, 0.99, 0.91);
}

}  // namespace
}  // namespace adjoint
