// What goes wrong elsewhere when optimizations are composed, and must hold here: one test or a few
// per public report, T1 to T12. T5 and T7 are in tests/functors/lora_test.cpp.
#include <set>

#include "analysis/roles.h"
#include "base/error_text.h"
#include "kernels/harness.h"
#include "models/small_models.h"
#include "models/test_models.h"
#include "train/same_steps.h"

namespace adjoint {
namespace {

Scheme preset(const char* name, int64_t batch, int64_t context, nlohmann::json settings) {
  return BoundModel(find_model(name),
                    {.batch = batch, .context = context, .settings = std::move(settings)})
      .forward();
}
Scheme gpt2(int64_t batch, double dropout = 0.1) {
  return preset(
      "char", batch, 12,
      {{"layers", 4}, {"hidden", 24}, {"heads", 3}, {"vocab", kTestVocab}, {"dropout", dropout}});
}
Scheme llama(int64_t batch, int tied = 0) {
  return preset("llama-tiny", batch, 12,
                {{"layers", 2}, {"vocab", kTestVocab}, {"tied", tied}, {"dropout", 0.1}});
}

Scheme step_of(const Scheme& forward, const std::string& stack, double clip = 1) {
  return training_step(forward, {.clip = clip, .stack = stack});
}

std::vector<const Morphism*> morphisms_of(const Scheme& s, std::string_view op) {
  std::vector<const Morphism*> found;
  for (const Morphism& m : s.morphisms) {
    if (m.op == op) found.push_back(&m);
  }
  return found;
}

// Where AdamW takes what it reads.
constexpr size_t kAdamParameter = 0, kAdamGradient = 1, kAdamFactor = 5, kAdamOk = 6;

// Gradients by the parameter's path, as the updates read them.
std::map<std::string, Value> gradients_of(const Scheme& step) {
  std::map<std::string, Value> found;
  for (const Morphism* m : morphisms_of(step, "adamw")) {
    const bool first =
        found.emplace(step[m->inputs[kAdamParameter]].source.path, m->inputs[kAdamGradient]).second;
    EXPECT_TRUE(first) << "one update of " << step[m->inputs[kAdamParameter]].source.path;
  }
  return found;
}

// One run whose gradients can be read after a step.
class Traced {
 public:
  Traced(const Scheme& step, bool reference)
      : run([&] {
          Scheme s = step;
          for (const auto& [path, v] : gradients_of(step)) s.outputs.push_back(v);
          if (reference) s = to_reference(s);
          return adjoint::Run(s, make_plan(s, {.threads = num_threads()}),
                              {.reference = reference, .poison = true});
        }()) {
    for (const auto& [path, v] : gradients_of(step)) paths_.push_back(path);
    initialize(run, 11);
    const Scheme& s = run.scheme();
    for (const Value in : s.inputs) {
      if (!s[in].init) continue;
      // Both begin with the same numbers, the float32 ones.
      Numbers x = run.values(in);
      for (double& number : x) number = static_cast<float>(number);
      run.set_values(in, x);
    }
    if (const Value scale = input_named(s, "scale"); scale >= 0) run.set_number(scale, 1);
    run.set_number(input_named(s, "rate"), 1e-3);
  }

  // Sample b has 1 + 4b targets (as many as there are at most), and sample 1 has none.
  void ragged_step() {
    const Scheme& s = run.scheme();
    write_batch(run, 0);
    const Value targets = input_named(s, "targets");
    const int64_t batch = s[targets].type.dim(0), seq = s[targets].type.dim(1);
    auto* ids = static_cast<int32_t*>(run.data(targets));
    counted_ = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t valid = b == 1 ? 0 : std::min(seq, 1 + 4 * b);
      counted_ += static_cast<double>(valid);
      for (int64_t t = 0; t < seq; ++t) {
        int32_t& id = ids[b * seq + t];
        id = t < valid ? static_cast<int32_t>((5 * b + 7 * t) % kTestVocab) : -1;
      }
    }
    run.step();
    EXPECT_EQ(count(), counted_);
  }

  double loss() const { return run.number(run.scheme().outputs[0]); }
  double count() const { return run.number(run.scheme().outputs[1]); }
  double norm() const { return run.number(run.scheme().outputs[2]); }
  std::map<std::string, Numbers> gradients() const {
    std::map<std::string, Numbers> all;
    for (size_t k = 0; k < paths_.size(); ++k)
      all[paths_[k]] = run.values(run.scheme().outputs[3 + k]);
    return all;
  }
  // All that a step carries on, but for the scale of the loss.
  std::map<std::string, Numbers> state() const {
    std::map<std::string, Numbers> all;
    const Scheme& s = run.scheme();
    for (const Carry& c : s.carries) {
      if (s[c.in].source.path != "loss_scale") all[to_string(s[c.in].source)] = run.values(c.in);
    }
    return all;
  }

  adjoint::Run run;

 private:
  std::vector<std::string> paths_;
  double counted_ = 0;
};

// Per tensor at most 4 times as far from float64 as the plain step is, or within `within`.
void expect_near(const Traced& got, const Traced& plain, const Traced& judge, double within) {
  const auto ours = got.gradients(), theirs = plain.gradients(), want = judge.gradients();
  ASSERT_EQ(ours.size(), want.size());
  for (const auto& [path, numbers] : want) {
    const double error = relative_error(ours.at(path), numbers),
                 usual = relative_error(theirs.at(path), numbers);
    EXPECT_LE(error, std::max(4 * usual, within)) << path << ", plain " << usual;
  }
}

TEST(Acceptance, T1_RaggedCountsGiveTheSameGradientsInAnyNumberOfParts) {
  for (const int64_t batch : {5, 4}) {
    for (const Scheme& forward : {gpt2(batch), llama(batch)}) {
      const Scheme plain_step = step_of(forward, "");
      Traced plain(plain_step, false), judge(plain_step, true);
      plain.ragged_step();
      judge.ragged_step();
      ASSERT_GT(judge.norm(), 0);
      EXPECT_NEAR(plain.loss(), judge.loss(), 1e-6 * judge.loss());
      for (const char* stack : {"accumulate(1)", "accumulate(2)", "accumulate(4)"}) {
        SCOPED_TRACE(forward.name + ", batch " + std::to_string(batch) + ", " + stack);
        Traced parts(step_of(forward, stack), false);
        parts.ragged_step();
        EXPECT_NEAR(parts.loss(), plain.loss(), 1e-6 * plain.loss());
        EXPECT_NEAR(parts.norm(), judge.norm(), 2e-6 * judge.norm());
        expect_near(parts, plain, judge, 2e-6);
      }
    }
  }
}

TEST(Acceptance, T2_RecomputationKeepsTheLossCurveOfDropoutBitForBit) {
  for (const Scheme& forward : {gpt2(3), llama(3)}) {
    const Scheme plain = step_of(forward, "");
    ASSERT_FALSE(morphisms_of(step_of(forward, "-fuse"), "dropout").empty());
    for (const char* stack : {"checkpoint(block)", "checkpoint(every=2)", "checkpoint(all)"}) {
      SCOPED_TRACE(forward.name + ", " + stack);
      const Scheme step = step_of(forward, stack);
      EXPECT_NE(print(step), print(plain));
      expect_same_bits(plain, step, kTestVocab, 5);
    }
  }
}

TEST(Acceptance, T3_TheRoutersChoiceIsSavedAndNeverMadeAgain) {
  for (const char* model : {"moe", "mixtral"}) {
    const Scheme forward = test_model(model);
    const Scheme plain = step_of(forward, "");
    const size_t choices = morphisms_of(plain, "top_k").size();
    EXPECT_EQ(choices, 2u) << "one a block";
    for (const char* stack : {"checkpoint(block)", "checkpoint(all)"}) {
      SCOPED_TRACE(std::string(model) + ", " + stack);
      const Scheme step = step_of(forward, stack);
      EXPECT_EQ(morphisms_of(step, "top_k").size(), choices);
      EXPECT_GT(step.morphisms.size(), plain.morphisms.size()) << "the rest is made again";
      expect_same_bits(plain, step, kTestVocab);
    }
  }
}

TEST(Acceptance, T4_RecomputationAndFusionAtHidden128And256) {
  for (const int hidden : {128, 256}) {
    const Scheme forward =
        preset("char", 2, 16,
               {{"layers", 2}, {"hidden", hidden}, {"heads", 4}, {"vocab", 37}, {"dropout", 0.1}});
    const Scheme plain = step_of(forward, "");
    std::set<std::string> different = {print(plain)};
    for (const char* stack : {"-fuse", "checkpoint(block)", "checkpoint(block) | -fuse"}) {
      SCOPED_TRACE(std::to_string(hidden) + ", " + stack);
      const Scheme step = step_of(forward, stack);
      EXPECT_TRUE(different.insert(print(step)).second) << "another scheme, the same bits";
      expect_same_bits(plain, step, kTestVocab, 2);
    }
  }
}

constexpr const char* kScaledStack = "fp16 | accumulate(3) | offload(optimizer)";

TEST(Acceptance, T6_AllUpdatesReadOneNormAndOneUnscale) {
  for (const double clip : {1.0, 0.0}) {
    SCOPED_TRACE(clip);
    const Scheme step = step_of(gpt2(5), kScaledStack, clip);
    const auto updates = morphisms_of(step, "adamw");
    std::set<Value> factors, answers;
    for (const Morphism* m : updates) {
      factors.insert(m->inputs[kAdamFactor]);
      answers.insert(m->inputs[kAdamOk]);
      EXPECT_EQ(m->section, Section::kEpilogue) << "once a step, not once a part";
    }
    ASSERT_EQ(factors.size(), 1u) << "one division by count and scale";
    ASSERT_EQ(answers.size(), 1u) << "one answer whether the step counts";
    int norms = 0;
    for (const Morphism* m : morphisms_of(step, "gradient_factor")) {
      EXPECT_EQ(m->section, Section::kEpilogue);
      if (m->inputs.size() < 3) continue;
      ++norms;
      EXPECT_EQ(m->outputs[1], *answers.begin());
      EXPECT_EQ(m->outputs[2], step.outputs[2]);
      EXPECT_EQ(m->outputs[0] == *factors.begin(), clip > 0);
    }
    EXPECT_EQ(norms, 1);
    EXPECT_EQ(morphisms_of(step, "square_sum").size(), updates.size());
    EXPECT_EQ(morphisms_of(step, "loss_scale").size(), 1u);
    // The scale goes in once, where the backward begins, and out by the division.
    const Value scale = *step.find({"loss_scale"});
    for (const Morphism& m : step.morphisms) {
      if (m.phase != Phase::kUpdate || !std::count(m.inputs.begin(), m.inputs.end(), scale))
        continue;
      EXPECT_TRUE(m.op == "gradient_factor" || m.op == "loss_scale") << m.op;
    }
  }
}

TEST(Acceptance, T6_AStepThatOverflowsChangesTheScaleAlone) {
  for (const double clip : {1.0, 0.0}) {
    SCOPED_TRACE(clip);
    const Scheme step = step_of(gpt2(5), kScaledStack, clip);
    Traced ours(step, false);
    const Value scale = *step.find({"loss_scale"}),
                steps = *step.find({"optimizer", "adamw.steps"});
    // A good step first, so that moments and the count are not zero.
    ours.run.set_number(scale, 256);
    ours.ragged_step();
    ASSERT_TRUE(std::isfinite(ours.norm()));
    EXPECT_EQ(ours.run.number(steps), 1);
    const auto before = ours.state();
    ours.run.set_number(scale, 0x1p24);
    ours.ragged_step();
    EXPECT_FALSE(std::isfinite(ours.norm())) << "2^24 is more than float16 holds";
    EXPECT_TRUE(std::isfinite(ours.loss())) << "the loss is not scaled";
    EXPECT_EQ(ours.run.number(scale), 0x1p23);
    EXPECT_EQ(ours.state(), before);
    ours.run.set_number(scale, 256);
    ours.ragged_step();
    EXPECT_TRUE(std::isfinite(ours.norm()));
    EXPECT_EQ(ours.run.number(steps), 2);
    EXPECT_EQ(ours.run.number(scale), 256);
    const auto after = ours.state();
    for (const auto& [name, numbers] : before) EXPECT_NE(after.at(name), numbers) << name;
  }
}

TEST(Acceptance, T6_NoMicroStepIsLost) {
  for (const double clip : {1.0, 0.0}) {
    SCOPED_TRACE(clip);
    const Scheme whole_step = step_of(gpt2(5), "fp16 | accumulate(1) | offload(optimizer)", clip);
    const Scheme parts_step = step_of(gpt2(5), kScaledStack, clip);
    Traced whole(whole_step, false), parts(parts_step, false), judge(whole_step, true);
    for (Traced* t : {&whole, &parts, &judge}) {
      t->run.set_number(*t->run.scheme().find({"loss_scale"}), 256);
      t->ragged_step();
    }
    EXPECT_EQ(parts.count(), whole.count());
    EXPECT_NEAR(parts.loss(), whole.loss(), 1e-5 * whole.loss());
    EXPECT_NEAR(parts.norm(), whole.norm(), 1e-4 * whole.norm());
    expect_near(parts, whole, judge, 1e-5);
  }
}

// One call per parameter, to look at each.
std::string single_updates(const std::string& stack) {
  return stack + (stack.empty() ? "" : " | ") + "-gang_updates";
}

TEST(Acceptance, T8_ATiedEmbeddingStaysOneParameter) {
  for (const Scheme& forward : {gpt2(4), llama(4, 1)}) {
    // Looked up and read out.
    const std::vector<ParameterKind> kinds = parameter_kinds(forward);
    std::string table;
    for (const Morphism& m : forward.morphisms) {
      if (m.op == "embed" && kinds[m.inputs[1]] == ParameterKind::kMatrix) {
        table = forward[m.inputs[1]].source.path;
      }
    }
    ASSERT_FALSE(table.empty());
    for (const char* stack :
         {"", "accumulate(2)", "checkpoint(block)", "bf16", "offload(parameters)",
          "accumulate(2) | checkpoint(block) | bf16 | offload(parameters)"}) {
      SCOPED_TRACE(forward.name + ", " + stack);
      const Scheme step = step_of(forward, single_updates(stack));
      const auto is_table = [&](Value v) {
        return step[v].role == Role::kParameter && step[v].source == Source{table};
      };
      EXPECT_EQ(std::count_if(step.inputs.begin(), step.inputs.end(), is_table), 1);
      int carried = 0, updated = 0;
      for (const Carry& c : step.carries) {
        carried += is_table(c.in);
        EXPECT_EQ(is_table(c.in), is_table(c.out));
      }
      for (const Morphism* m : morphisms_of(step, "adamw")) {
        updated += step[m->inputs[kAdamParameter]].source.path == table;
      }
      EXPECT_EQ(carried, 1);
      EXPECT_EQ(updated, 1);
      EXPECT_EQ(gradients_of(step).count(table), 1u);
      EXPECT_EQ(morphisms_of(step, "square_sum").size(), gradients_of(step).size())
          << "in the norm once";
    }
  }
}

// Here every matrix and table has rank 2 and every gain and bias rank 1.
TEST(Acceptance, T8_DecayIsByWhatAParameterIs) {
  for (const Scheme& forward : {gpt2(4), llama(4), llama(4, 1), test_model("odd")}) {
    for (const char* stack :
         {"", "accumulate(2) | checkpoint(block) | bf16 | offload(parameters)"}) {
      SCOPED_TRACE(forward.name + ", " + stack);
      const Scheme step = step_of(forward, single_updates(stack));
      int matrices = 0, vectors = 0;
      for (const Morphism* m : morphisms_of(step, "adamw")) {
        const Object& p = step[m->inputs[kAdamParameter]];
        const bool matrix = p.type.rank() == 2;
        ++(matrix ? matrices : vectors);
        EXPECT_EQ(std::get<double>(m->attrs.at("decay")), matrix ? 0.1 : 0.0) << p.source.path;
      }
      EXPECT_GT(matrices, 4);
      EXPECT_GT(vectors, 4);
      EXPECT_EQ(static_cast<size_t>(matrices + vectors),
                paths_of(forward, Role::kParameter).size());
    }
  }
}

TEST(Acceptance, T12_AnyOrderOfAStackIsTheSameStep) {
  for (const Scheme& forward : {gpt2(4), llama(4)}) {
    std::vector<std::string> items = {"accumulate(2)", "bf16", "checkpoint(every=2)",
                                      "lora(rank=4)"};
    std::set<std::string> steps;
    int orders = 0;
    do {
      ++orders;
      std::string stack = items[0];
      for (size_t i = 1; i < items.size(); ++i) stack += " | " + items[i];
      steps.insert(print(step_of(forward, stack)));
      EXPECT_EQ(steps.size(), 1u) << stack;
    } while (std::next_permutation(items.begin(), items.end()));
    EXPECT_EQ(orders, 24);
  }
}

TEST(Acceptance, T12_AnIllegalStackIsRefusedWithObjectReasonAndNearestLegalValue) {
  const Scheme forward = gpt2(4);
  const auto said = [&](const char* stack) { return error_text([&] { step_of(forward, stack); }); };
  struct Refused {
    const char* stack;
    std::vector<std::string> parts;
  };
  const std::vector<Refused> all = {
      {"checkpoint(every=99)",
       {"checkpoint", "every=99", "4 blocks of the chain", "at most every=4"}},
      {"accumulate(8)", {"accumulate", "the batch has 4 samples", "at most 4 parts", "found 8"}},
      {"bf16 | fp16", {"bf16", "f16", "precision", "of 'wte'", "leave one of them out"}},
      {"quantize(nf4)", {"quantize", "nothing is frozen", "add lora or freeze"}},
      {"quantize(nf4) | lora", {"quantize", "groups of 64", "'wte.weight'", "24 long", "is 24"}},
  };
  for (const Refused& refused : all) {
    const std::string text = said(refused.stack);
    for (const std::string& part : refused.parts) {
      EXPECT_TRUE(has(text, part)) << refused.stack << " does not say '" << part << "': " << text;
    }
  }
  // What the refusals name is legal.
  EXPECT_EQ(said("checkpoint(every=4)"), "");
  EXPECT_EQ(said("accumulate(4)"), "");
  EXPECT_EQ(said("bf16"), "");
  EXPECT_EQ(said("quantize(nf4, group=24) | lora"), "");
}

}  // namespace
}  // namespace adjoint
