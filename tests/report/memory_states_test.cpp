// What is alive after each block of a chain of six equal blocks, as the category of memory states
// says it, and in bytes as the plan has them; and docs/schedules.md prints what is printed today.
#include "report/memory_states.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "functors/pipeline.h"
#include "functors/stage_schedule.h"
#include "functors/stage_step.h"
#include "models/small_models.h"

namespace adjoint {
namespace {

constexpr int kBlocks = 6;

struct Built {
  Scheme said, step;
};

Built built(const std::string& stack, int batch = 4) {
  const Scheme forward = elaborate_preset(
      "char", {{"layers", kBlocks}, {"hidden", 128}, {"seq", 16}, {"batch", double(batch)}});
  const StepOptions options{.stack = stack, .on_mesh = true};
  return {said_step(forward, parse_stack(stack), options),
          build_step(forward, parse_stack(stack), options).scheme};
}

int count(const Factors& factors, FactorKind kind) {
  return static_cast<int>(std::count_if(factors.begin(), factors.end(),
                                        [&](const Factor& f) { return f.kind == kind; }));
}

// x and dx are there or not; of ch and t there are so many.
std::string powers(const Factors& factors) {
  std::string text;
  const auto add = [&](const char* letter, FactorKind kind) {
    if (const int n = count(factors, kind); n > 0) text += fmt::format(" {}{}", letter, n);
  };
  add("x", FactorKind::kState);
  add("ch", FactorKind::kCheckpoint);
  add("t", FactorKind::kBlock);
  add("y", FactorKind::kSent);
  add("dx", FactorKind::kGradient);
  return text.empty() ? text : text.substr(1);
}

std::vector<std::string> rows_of(const std::vector<MemoryState>& states) {
  std::vector<std::string> rows;
  for (const MemoryState& s : states) {
    constexpr const char* passes[] = {"F", "A", "B"};
    rows.push_back(
        fmt::format("{}{} {}", passes[static_cast<size_t>(s.pass)], s.block, powers(s.factors)));
  }
  return rows;
}

// By the plan alone: activations that are alive at this place and at the next.
int64_t live_activations(const Plan& plan, int place) {
  int64_t bytes = 0;
  for (const Alive& alive : plan.alive_at(place)) {
    const bool stays = plan.storages[alive.storage].last > place;
    if (stays && alive.tenant.category == Category::kActivations) {
      bytes += alive.tenant.size.count;
    }
  }
  return bytes;
}

int64_t activations_in(const Factors& factors) {
  int64_t bytes = 0;
  for (const Factor& f : factors) {
    if (f.kind != FactorKind::kGradient) bytes += f.bytes.count;
  }
  return bytes;
}

void expect_equal_factors(const std::vector<Factors>& all, FactorKind kind) {
  int64_t bytes = 0;
  for (const Factors& factors : all) {
    for (const Factor& f : factors) {
      if (f.kind != kind) continue;
      if (bytes == 0) bytes = f.bytes.count;
      EXPECT_EQ(f.bytes.count, bytes) << "index " << f.index;
    }
  }
  EXPECT_GT(bytes, 0);
}

std::vector<MemoryState> checked_states(const std::string& stack) {
  const Built b = built(stack);
  const Plan plan = make_plan(b.step, {});
  const std::vector<MemoryState> states = memory_states(b.said, b.step, plan);
  std::vector<Factors> all;
  for (const MemoryState& s : states) {
    EXPECT_EQ(activations_in(s.factors), live_activations(plan, s.place)) << stack;
    EXPECT_GE(s.most, total(s.factors)) << stack;
    all.push_back(s.factors);
  }
  expect_equal_factors(all, FactorKind::kBlock);
  return states;
}

TEST(MemoryStates, ThePlainStepGrowsByOneBlockAndShrinksByOne) {
  const std::vector<MemoryState> states = checked_states("");
  std::vector<std::string> wanted = {"F0 x1"};
  for (int l = 1; l <= kBlocks; ++l) wanted.push_back(fmt::format("F{} x1 t{}", l, l));
  for (int l = kBlocks + 1; l > 1; --l) wanted.push_back(fmt::format("B{} t{} dx1", l, l - 1));
  wanted.emplace_back("B1 dx1");
  EXPECT_EQ(rows_of(states), wanted);
  // The gradient that goes back is of a state.
  const Scheme said = built("").said;
  const auto state = said.find({"block[0].add#2"});
  ASSERT_TRUE(state);
  for (const MemoryState& s : states) {
    for (const Factor& f : s.factors) {
      if (f.kind != FactorKind::kGradient) continue;
      EXPECT_EQ(f.bytes, said[*state].type.bytes());
    }
  }
}

// Forward there is a checkpoint for every segment that was begun; backward the segment before the
// last checkpoint is recomputed, block by block, and consumed again.
TEST(MemoryStates, CheckpointsAreKeptAndSegmentsRecomputed) {
  for (const int every : {1, 2, 3, 6}) {
    std::vector<std::string> wanted = {"F0 x1"};
    for (int l = 1; l <= kBlocks; ++l) {
      wanted.push_back(fmt::format("F{} x1 ch{}", l, (l + every - 1) / every));
    }
    wanted.push_back(fmt::format("B{} ch{} dx1", kBlocks + 1, kBlocks / every));
    for (int k = kBlocks / every - 1; k >= 0; --k) {
      const std::string ch = k > 0 ? fmt::format("ch{} ", k) : "";
      for (int i = 1; i <= every; ++i) {
        wanted.push_back(
            fmt::format("A{} {}{}t{} dx1", k * every + i, i < every ? "x1 " : "", ch, i));
      }
      for (int i = every; i >= 1; --i) {
        const std::string t = i > 1 ? fmt::format("t{} ", i - 1) : "";
        wanted.push_back(fmt::format("B{} {}{}dx1", k * every + i, ch, t));
      }
    }
    const std::vector<MemoryState> states =
        checked_states(fmt::format("checkpoint(every={})", every));
    EXPECT_EQ(rows_of(states), wanted) << every;
    // A checkpoint is a state and nothing else.
    std::vector<Factors> all;
    for (const MemoryState& s : states) all.push_back(s.factors);
    expect_equal_factors(all, FactorKind::kCheckpoint);
    const Built b = built("");
    const auto state = b.said.find({"block[0].add#2"});
    ASSERT_TRUE(state);
    EXPECT_EQ(states[1].factors[1].bytes, b.said[*state].type.bytes());
  }
}

TEST(MemoryStates, OfOneBlockIsTheSameRecomputedOrKept) {
  const auto block_bytes = [](const std::vector<MemoryState>& states) {
    for (const MemoryState& s : states) {
      for (const Factor& f : s.factors) {
        if (f.kind == FactorKind::kBlock) return f.bytes.count;
      }
    }
    return int64_t{0};
  };
  EXPECT_EQ(block_bytes(checked_states("")), block_bytes(checked_states("checkpoint(every=3)")));
}

// A grid per rank: parts down, slots along.
std::vector<std::vector<std::string>> grid_of(const std::string& stack, int rank) {
  const Built b = built(stack);
  const Schedule schedule = schedule_of(b.step);
  const Scheme step = step_of_stage(b.step, rank);
  const Plan plan = make_plan(step, {});
  std::vector<std::vector<std::string>> rows(schedule.parts);
  std::vector<Factors> all;
  for (const SlotState& s : slot_states(b.said, b.step, step, plan, schedule.lists[rank])) {
    int64_t bytes = activations_in(s.of_no_part);
    for (int part = 0; part < schedule.parts; ++part) {
      std::string cell = powers(s.parts[part]);
      rows[part].push_back(cell);
      bytes += activations_in(s.parts[part]);
      all.push_back(s.parts[part]);
    }
    EXPECT_EQ(bytes, live_activations(plan, s.place)) << stack << " rank " << rank;
    EXPECT_GE(s.most.count, bytes);
  }
  if (stack.find("checkpoint") == std::string::npos) expect_equal_factors(all, FactorKind::kBlock);
  return rows;
}

// How many blocks a rank keeps of each part after each slot, as text: "3 3 . ." for a part.
std::string kept(const std::vector<std::string>& cells, const std::string& letter) {
  std::string text;
  for (const std::string& cell : cells) {
    const size_t at = (" " + cell).find(" " + letter);
    text += at == std::string::npos ? "." : cell.substr(at + letter.size(), 1);
  }
  return text;
}

TEST(MemoryStates, APipelineHoldsWholeStagesOfThePartsInFlight) {
  // Rank 0 of 1f1b: F0 F1 B0 B1; rank 1: F0 B0 F1 B1.
  const auto first = grid_of("pipeline(2)", 0), last = grid_of("pipeline(2)", 1);
  EXPECT_EQ(kept(first[0], "t"), "33..");
  EXPECT_EQ(kept(first[1], "t"), ".33.");
  EXPECT_EQ(kept(last[0], "t"), "3...");
  EXPECT_EQ(kept(last[1], "t"), "..3.");
  EXPECT_EQ(kept(first[0], "y")[0], '1');       // on its way to the second stage
  EXPECT_EQ(kept(first[1], "dx").back(), '.');  // what remains are gradients of parameters
  EXPECT_EQ(kept(last[1], "x"), ".1..");        // received while part 0 goes backward
  const auto gpipe = grid_of("pipeline(3, schedule=gpipe, parts=4)", 1);
  for (int part = 0; part < 4; ++part) {
    std::string wanted(8, '.');
    for (int slot = part; slot < 4 + part; ++slot) wanted[slot] = '2';
    EXPECT_EQ(kept(gpipe[part], "t"), wanted) << part;
  }
}

TEST(MemoryStates, ACheckpointedStageHoldsOneStatePerSegmentOfAPart) {
  const auto first = grid_of("pipeline(2) | checkpoint(every=3)", 0);
  const auto last = grid_of("pipeline(2) | checkpoint(every=3)", 1);
  EXPECT_EQ(kept(first[0], "ch"), "11..");
  EXPECT_EQ(kept(first[0], "t"), "....");
  EXPECT_EQ(kept(last[1], "ch"), "..1.");
  EXPECT_EQ(kept(grid_of("pipeline(2) | checkpoint(every=1)", 0)[0], "ch"), "33..");
}

std::string refusal_of(const std::string& stack) {
  try {
    built(stack, 12);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// A recomputed segment must not cross a stage, so the length of a stage is a multiple of the
// segment's.
TEST(MemoryStates, PipelinesAreLegalWhereStagesAreWholeSegments) {
  for (const int stages : {1, 2, 3, 6}) {
    for (int every = 1; every <= kBlocks; ++every) {
      const std::string stack = fmt::format("pipeline({}) | checkpoint(every={})", stages, every);
      const std::string refusal = refusal_of(stack);
      const bool legal = stages == 1 || (kBlocks / stages) % every == 0;
      EXPECT_EQ(refusal.empty(), legal) << stack << ": " << refusal;
    }
  }
}

TEST(MemoryStates, ARefusalNamesTheNearestThatFits) {
  EXPECT_EQ(refusal_of("pipeline(3) | checkpoint(every=3)"),
            "pipeline: what is recomputed as a whole must not cross a stage: of the chain's "
            "states, stages begin at 2 and 4, and checkpoint keeps 0, 3 and 6; nearest that fit "
            "are segments of 2 blocks, or at most 2 stages, which begin at states that checkpoint "
            "keeps");
  const std::string text = read_file(std::string(SOURCE_DIR) + "/docs/schedules.md");
  EXPECT_NE(text.find(refusal_of("pipeline(3) | checkpoint(every=3)")), std::string::npos);
  const std::string between = refusal_of("pipeline(2) | checkpoint(every=2)");
  EXPECT_NE(between.find("segments of 1 or 3 blocks"), std::string::npos) << between;
  for (const char* fits :
       {"pipeline(3) | checkpoint(every=2)", "pipeline(2) | checkpoint(every=3)",
        "pipeline(2) | checkpoint(every=1)", "pipeline(3, cuts=[2, 4]) | checkpoint(every=2)"}) {
    EXPECT_EQ(refusal_of(fits), "") << fits;
  }
}

TEST(MemoryStates, TheDocumentPrintsWhatIsPrinted) {
  const std::string text = read_file(std::string(SOURCE_DIR) + "/docs/schedules.md");
  const Scheme forward = elaborate_preset("char", {{"layers", kBlocks}, {"batch", 4}});
  for (const std::string stack : {"", "checkpoint(every=sqrt)", "pipeline(2, parts=4)",
                                  "pipeline(2, parts=4) | checkpoint(every=3)"}) {
    const StepOptions options{.stack = stack, .on_mesh = true};
    const std::string table =
        memory_states_table(said_step(forward, parse_stack(stack), options),
                            build_step(forward, parse_stack(stack), options).scheme, {});
    const std::string command = "$ adjoint show --model char --set layers=6 --batch 4 " +
                                (stack.empty() ? "" : "--stack '" + stack + "' ") +
                                "--memory-states --threads 1\n";
    EXPECT_NE(text.find(command + table), std::string::npos) << "wanted\n" << command << table;
  }
}

TEST(MemoryStates, AModelWithoutAChainIsRefused) {
  const Scheme forward = elaborate_preset("char", {{"layers", 1}});
  EXPECT_THROW(memory_states_table(said_step(forward, parse_stack(""), {}),
                                   build_step(forward, parse_stack(""), {}).scheme, {}),
               Error);
}

}  // namespace
}  // namespace adjoint
