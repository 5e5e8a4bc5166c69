// A timeline says of every call what the plan says: no byte more, no byte less.
#include "report/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "functors/stage_step.h"
#include "report/planned.h"

namespace adjoint {
namespace {

TEST(Timeline, ItsHighestPointIsThePlansPeak) {
  for (const Case& c : cases()) {
    const Planned p = planned(c.preset, c.stack, c.clip);
    for (const Tier tier : kTiers) {
      const Timeline t = make_timeline(p.scheme, p.plan, {.tier = tier});
      EXPECT_EQ(t.peak, p.plan.arena_of(tier).live_peak) << said(c);
      EXPECT_EQ(t.peak_at, p.plan.arena_of(tier).peak_at) << said(c);
      EXPECT_EQ(t.arena, p.plan.arena_of(tier).size) << said(c);
      const std::vector<Bytes> at_peak = p.plan.at_peak(tier);
      for (int k = 0; k < kNumCategories; ++k) {
        EXPECT_EQ(t.live[t.peak_at][k], at_peak[k].count) << said(c) << " category " << k;
      }
    }
  }
}

// Summed from the storages, not by differences.
TEST(Timeline, CategoriesAddUpToTheLiveBytesAtEveryPlace) {
  for (const Case& c : cases()) {
    const Planned p = planned(c.preset, c.stack, c.clip);
    for (const Tier tier : kTiers) {
      const Timeline t = make_timeline(p.scheme, p.plan, {.tier = tier});
      ASSERT_EQ(t.live.size(), p.plan.calls.size() + 1);
      for (int at = 0; at < static_cast<int>(t.live.size()); ++at) {
        int64_t alive = 0;
        for (const Storage& s : p.plan.storages) {
          if (s.tier == tier && s.first <= at && at <= s.last) alive += s.size.count;
        }
        ASSERT_EQ(total(t.live[at]), alive) << said(c) << " at " << at;
      }
    }
  }
}

TEST(Timeline, PhasesCoverEveryCallOnceAndInOrder) {
  for (const Case& c : cases()) {
    const Planned p = planned(c.preset, c.stack, c.clip);
    const Timeline t = make_timeline(p.scheme, p.plan, {});
    for (const auto* stretches : {&t.phases, &t.sections}) {
      int next = 0;
      for (const Stretch& s : *stretches) {
        EXPECT_EQ(s.first, next) << said(c) << " " << s.name;
        EXPECT_GE(s.last, s.first) << said(c);
        next = s.last + 1;
      }
      EXPECT_EQ(next, static_cast<int>(t.moments.size())) << said(c);
    }
    int last = -1;
    for (const Stretch& b : t.blocks) {
      EXPECT_GT(b.first, last) << said(c) << ": blocks do not overlap: " << b.name;
      last = b.last;
    }
  }
}

TEST(Timeline, SaysPhasesAndBlocksOfAPlainStep) {
  const Planned p = planned("char", "");
  const Timeline t = make_timeline(p.scheme, p.plan, {});
  std::vector<std::string> phases, blocks;
  for (const Stretch& s : t.phases) phases.push_back(s.name);
  for (const Stretch& s : t.blocks) blocks.push_back(s.name);
  EXPECT_EQ(phases, (std::vector<std::string>{"forward", "backward", "update"}));
  EXPECT_EQ(blocks, (std::vector<std::string>{"block[0]", "block[1]", "block[2]", "block[2]",
                                              "block[1]", "block[0]"}));
}

std::vector<std::string> blocks_of(const Timeline& t, const std::string& phase) {
  std::vector<std::string> blocks;
  for (const Stretch& p : t.phases) {
    for (const Stretch& b : t.blocks) {
      if (p.name == phase && b.first >= p.first && b.last <= p.last) blocks.push_back(b.name);
    }
  }
  return blocks;
}

// Two blocks are computed again, and then differentiated from the last one on, whose last linear
// map begins with what it needs nothing again for.
TEST(Timeline, SaysTheBlocksOfSegments) {
  const Planned p = planned("char", "checkpoint(every=2)", 1, 4);
  const Timeline t = make_timeline(p.scheme, p.plan, {});
  EXPECT_EQ(blocks_of(t, "backward"),
            (std::vector<std::string>{"block[3]", "block[2]", "block[3]", "block[2]", "block[1]",
                                      "block[0]", "block[1]", "block[0]"}));
  // What the peak's words say is what stands below it.
  const Planned parts = planned("char", "accumulate(2) | checkpoint(every=2)", 1, 4);
  const Timeline peak = make_timeline(parts.scheme, parts.plan, {});
  const int at = peak.peak_moment();
  for (const Stretch& b : peak.blocks) {
    if (b.first <= at && at <= b.last) {
      EXPECT_NE(peak.peak_words.find(b.name), std::string::npos) << b.name << peak.peak_words;
    }
    EXPECT_LT(peak.moments[b.last].place, parts.plan.body_end) << "no block is updated";
  }
}

TEST(Timeline, SaysTheBlocksOfAPipelinesSlots) {
  const Scheme whole =
      build_step(
          elaborate_preset("char", {{"layers", 2}, {"hidden", 32}, {"batch", 4}, {"seq", 16}}),
          parse_stack("pipeline(2, parts=2)"), {.on_mesh = true})
          .scheme;
  const Planned p = planned(step_of_stage(whole, 1));
  const Timeline t = make_timeline(p.scheme, p.plan, {});
  for (const Stretch& phase : t.phases) {
    if (phase.name != "forward") continue;
    for (int i = phase.first; i <= phase.last; ++i) {
      EXPECT_EQ(t.kinds[t.moments[i].place], Kind::kForward) << i;
    }
  }
  EXPECT_EQ(blocks_of(t, "forward"), (std::vector<std::string>{"block[1]", "block[1]"}));
  // The gradient of the state that block[0] made is summed here.
  EXPECT_EQ(blocks_of(t, "backward"),
            (std::vector<std::string>{"block[1]", "block[0]", "block[1]", "block[0]"}));
}

TEST(Timeline, ShowsEveryPartOfTheBodyUntilThereAreTooMany) {
  const Planned p = planned("char", "accumulate(4)");
  const int body = p.plan.body_end - p.plan.body_begin;
  const int rest = static_cast<int>(p.plan.calls.size()) - body;
  const Timeline all = make_timeline(p.scheme, p.plan, {.most_parts = 4});
  EXPECT_EQ(static_cast<int>(all.moments.size()), rest + 4 * body);
  EXPECT_FALSE(all.body_once);
  EXPECT_EQ(std::count_if(all.moments.begin(), all.moments.end(),
                          [](const Moment& m) { return m.part == 3; }),
            body);
  const Timeline once = make_timeline(p.scheme, p.plan, {.most_parts = 3});
  EXPECT_EQ(static_cast<int>(once.moments.size()), rest + body);
  EXPECT_TRUE(once.body_once);
  EXPECT_EQ(once.parts, 4);
  EXPECT_EQ(once.left_out, 3 * body);
  EXPECT_EQ(once.step(), all.length());
  EXPECT_EQ(once.moments[once.last_before_fold()].place, p.plan.body_end - 1);
  EXPECT_EQ(all.last_before_fold(), -1);
}

TEST(Timeline, TakesSecondsWhereThereAreSome) {
  const Planned p = planned("char", "");
  std::vector<double> seconds(p.plan.calls.size(), 0.5);
  seconds[0] = 2;
  const Timeline t = make_timeline(p.scheme, p.plan, {.seconds = seconds});
  EXPECT_TRUE(t.in_seconds);
  EXPECT_EQ(t.moments[1].begins, 2);
  EXPECT_EQ(t.length(), 2 + 0.5 * static_cast<double>(seconds.size() - 1));
}

TEST(Timeline, SaysTheMomentInWords) {
  const Planned p = planned(parse_scheme(R"(scheme:
  input %0 x: f32[n=16]
  %1 block[2].y: f32[n=16] = gelu(%0) @block[2].gelu#1
  return %1
)"));
  EXPECT_EQ(moment_in_words(p.scheme, p.plan, 0),
            "at block[2].gelu#1 (gelu), forward of block[2], call 1 of 1");
  EXPECT_EQ(moment_in_words(p.scheme, p.plan, 1), "after the last of 1 calls");
}

TEST(Timeline, ABlockIsThePathUpToItsFirstIndex) {
  EXPECT_EQ(block_of({"block[3].qkv.weight", "grad"}), "block[3]");
  EXPECT_EQ(block_of({"stage.block[12].head[1].w"}), "stage.block[12]");
  EXPECT_EQ(block_of({"wte.weight", "adamw.m"}), "");
  EXPECT_EQ(block_of({"odd[3"}), "");
}

}  // namespace
}  // namespace adjoint
