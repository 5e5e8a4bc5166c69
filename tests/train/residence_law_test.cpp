// Recomputation is exact, whatever is recomputed: the same losses, parameters and moments, bit for
// bit. And it takes less memory, in the order in which it does more work.
#include <set>

#include "analysis/structure.h"
#include "analysis/totals.h"
#include "functors/functor_named.h"
#include "ops/op_def.h"
#include "train/same_steps.h"

namespace adjoint {
namespace {

using Mark = std::function<Residence(const Chain&, Value, int state)>;  // state: -1 for none

// Says `mark` of every object that the forward makes.
Scheme with_residence(Scheme step, const Mark& mark) {
  const Chain chain = find_chain(step);
  std::vector<int> state(step.objects.size(), -1);
  for (size_t l = 0; l < chain.states.size(); ++l) state[chain.states[l]] = static_cast<int>(l);
  for (const Morphism& m : step.morphisms) {
    if (m.phase != Phase::kForward) continue;
    for (const Value v : m.outputs) step[v].attributes.residence = mark(chain, v, state[v]);
  }
  Scheme result = realize_residence(step);
  verify(result);
  return result;
}

Residence blocks(const Chain& chain, Value v, int state) {
  if (state >= 0) return Residence::kKept;
  return chain.block_of[v] >= 0 ? Residence::kRecomputed : Residence::kUnsaid;
}
Residence every_second(const Chain& chain, Value v, int state) {
  return state >= 0 && state % 2 ? Residence::kRecomputed : blocks(chain, v, state);
}
// Nothing is kept but the input.
Residence all_apart(const Chain&, Value, int state) {
  return state >= 0 ? Residence::kApart : Residence::kRecomputed;
}

double recomputed_flops(const Scheme& scheme) {
  double flops = 0;
  for (const Morphism& m : scheme.morphisms) {
    flops += static_cast<double>(repeated_flops(scheme, m));
  }
  return flops;
}

TEST(ResidenceLaw, CheckpointsAreExact) {
  for (const SmallModel& model : small_models()) {
    const Scheme plain = bare_step(model.forward);
    for (const auto& [name, mark] : std::map<std::string, Mark>{
             {"blocks", blocks}, {"every second", every_second}, {"apart", all_apart}}) {
      SCOPED_TRACE(model.name + ", " + name);
      const Scheme step = with_residence(plain, mark);
      EXPECT_GT(recomputed_flops(step), 0);
      expect_same_bits(plain, step, model.vocab);
    }
  }
}

TEST(ResidenceLaw, SelectedOpsAreExact) {
  for (const SmallModel& model : small_models()) {
    SCOPED_TRACE(model.name);
    const Scheme plain = bare_step(model.forward);
    const std::vector<int> made_by = producers(plain);
    const std::string op = model.name == "nested" ? "linear" : "attention";
    const Scheme step = with_residence(plain, [&](const Chain&, Value v, int) {
      return plain.morphisms[made_by[v]].op == op ? Residence::kRecomputed : Residence::kUnsaid;
    });
    expect_same_bits(plain, step, model.vocab);
  }
}

TEST(ResidenceLaw, AnySubsetIsExact) {
  const std::vector<SmallModel> models = small_models();
  for (unsigned seed = 0; seed < 15; ++seed) {
    const SmallModel& model = models[seed % models.size()];
    SCOPED_TRACE(model.name + ", seed " + std::to_string(seed));
    const Scheme plain = bare_step(model.forward, {.clip = seed % 2 ? 1.0 : 0.0});
    std::mt19937 random(seed);
    const unsigned share = 2 + random() % 8;  // of ten
    const Scheme step = with_residence(plain, [&](const Chain&, Value, int) {
      if (random() % 10 >= share) return random() % 2 ? Residence::kKept : Residence::kUnsaid;
      return random() % 4 ? Residence::kRecomputed : Residence::kApart;
    });
    // Each epoch makes a thing once, and the backward reads nothing that it should have made.
    std::set<std::string> made;
    for (const Morphism& m : step.morphisms) {
      const bool once = m.epoch == 0 || made.insert(to_string(m.source)).second;
      EXPECT_TRUE(once) << to_string(m.source);
      if (m.phase == Phase::kForward) continue;
      for (const Value in : m.inputs) {
        const bool stays = std::count(step.outputs.begin(), step.outputs.end(), in) > 0;
        const Residence r = step[in].attributes.residence;
        EXPECT_TRUE(stays || r == Residence::kUnsaid || r == Residence::kKept)
            << to_string(step[in].source);
      }
    }
    expect_same_bits(plain, step, model.vocab, 2);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(ResidenceLaw, CheapRecomputationIsExactThroughTheWholePipeline) {
  for (const SmallModel& model : small_models()) {
    SCOPED_TRACE(model.name);
    const Scheme without = training_step(model.forward, {.stack = "-recompute_cheap"});
    const Scheme with = training_step(model.forward, {.stack = "recompute_cheap(within=1)"});
    EXPECT_EQ(recomputed_flops(without), 0);
    EXPECT_GT(recomputed_flops(with), 0);
    expect_same_bits(without, with, model.vocab);
  }
}

// With every stack: the same bits as without it.
TEST(ResidenceLaw, CheapRecomputationIsExactInStacks) {
  const std::vector<SmallModel> models = small_models();
  const char* stacks[] = {"checkpoint(every=2)",
                          "bf16",
                          "bf16 | checkpoint(every=2) | accumulate(3)",
                          "bf16 | accumulate(3) | offload(parameters)",
                          "checkpoint(every=2) | offload(parameters) | offload(activations)",
                          "bf16 | checkpoint(every=block) | lora(4)"};
  for (const char* stack : stacks) {
    for (const SmallModel& model : models) {
      SCOPED_TRACE(model.name + ", " + stack);
      const std::string bare = std::string("-recompute_cheap | ") + stack;
      const Scheme without = training_step(model.forward, {.stack = bare}),
                   with = training_step(
                       model.forward,
                       {.stack = std::string("recompute_cheap(within=1) | ") + stack});
      EXPECT_GT(recomputed_flops(with), recomputed_flops(without));
      expect_same_bits(without, with, model.vocab, 2);
    }
  }
}

// Twelve blocks in segments of four: neither norms nor gelus of the segment wait for their block's
// backward, and no weight's bf16 copy waits for anything.
TEST(ResidenceLaw, CheapOnesDoNotWaitInASegment) {
  const BoundModel model(find_model("gpt2"), {.batch = 32});
  const auto peak = [&](const std::string& stack) {
    return make_plan(training_step(model.forward(), {.stack = stack}), {.threads = 2})
        .live_peak.count;
  };
  const int64_t width = 4LL * 32 * 1024 * 768;  // of a state
  // Three blocks that wait have a gelu of four widths and two norms each; the fourth has the norms.
  EXPECT_LT(peak("checkpoint(sqrt) | recompute_cheap(within=1)"),
            peak("checkpoint(sqrt) | -recompute_cheap") - 3 * 6 * width);
  const int64_t weights = 2LL * 12 * 12 * 768 * 768;  // of the blocks, in bf16
  EXPECT_LT(peak("bf16 | checkpoint(block) | recompute_cheap(within=1)"),
            peak("bf16 | checkpoint(block) | -recompute_cheap") - weights * 9 / 10);
}

// By the stacks that a user writes, alone and beside others: the same bits as without them.
TEST(ResidenceLaw, StacksAreExact) {
  const std::vector<SmallModel> models = small_models();
  const std::pair<std::string, std::string> cases[] = {
      {"", "checkpoint(every=2)"},
      {"", "checkpoint(every=all)"},
      {"", "checkpoint(every=block) | offload(activations)"},
      {"", "offload(optimizer) | offload(parameters)"},
      {"-recompute_cheap", "offload(activations)"},
      {"accumulate(3)", "checkpoint(every=1)"},
      {"accumulate(3)", "checkpoint(every=all) | offload(activations) | offload(parameters)"},
      {"accumulate(3)", "offload(optimizer)"},
  };
  size_t turn = 0;
  for (const auto& [base, more] : cases) {
    const SmallModel& model = models[turn++ % models.size()];
    const std::string all = base.empty() ? more : base + " | " + more;
    SCOPED_TRACE(model.name + ", " + all);
    const Scheme without = training_step(model.forward, {.stack = base}),
                 with = training_step(model.forward, {.stack = all});
    EXPECT_NE(print(without), print(with));
    expect_same_bits(without, with, model.vocab, 2);
  }
}

// Twelve blocks at batch 8: every way of keeping less takes less, and computes more.
TEST(ResidenceLaw, MemoryFalls) {
  for (const char* preset : {"gpt2", "llama-tiny"}) {
    nlohmann::json settings = nlohmann::json::object();
    if (preset[0] == 'l') settings = {{"layers", 12}, {"hidden", 256}, {"ffn", 704}};
    const BoundModel model(
        find_model(preset),
        {.batch = 8, .context = preset[0] == 'l' ? 512 : 1024, .settings = settings});
    const Scheme plain = bare_step(model.forward(), {.clip = 0});
    const double work = flops_by_phase(plain)[0];
    struct Kept {
      int64_t peak;
      double again;  // as a share of the forward
    };
    const auto measured = [&](const char* name, const Scheme& step) {
      const Plan plan = make_plan(step, {.threads = 2});
      const Kept kept{plan.live_peak.count, recomputed_flops(step) / work};
      std::printf(
          "%-10s %-12s peak %7.3f GiB, activations %7.3f GiB, again %5.3f of the forward\n", preset,
          name, double(kept.peak) / (1 << 30),
          double(plan.at_peak()[static_cast<size_t>(Category::kActivations)].count) / (1 << 30),
          kept.again);
      return kept;
    };
    const Kept all = measured("plain", plain);
    const Kept cheap =
        measured("cheap", realize_residence(apply_functor("recompute_cheap(within=1)", plain)));
    const Kept block = measured("blocks", with_residence(plain, blocks));
    const Kept second = measured("second", with_residence(plain, every_second));
    const Kept apart = measured("apart", with_residence(plain, all_apart));
    EXPECT_LT(cheap.peak, all.peak) << preset;
    EXPECT_LT(block.peak, cheap.peak) << preset;
    EXPECT_LT(2 * block.peak, all.peak) << preset;
    EXPECT_LT(apart.peak, block.peak) << preset;
    EXPECT_LT(cheap.again, 0.05) << preset;
    EXPECT_LT(block.again, 1) << preset << ": a block at most once, and not its last sum";
    EXPECT_LE(second.again, 1) << preset;
    EXPECT_GT(apart.again, 5) << preset << ": half of twelve blocks, twelve times";
  }
}

}  // namespace
}  // namespace adjoint
