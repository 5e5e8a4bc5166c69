// Laws of pipelines: a step that stages run, each a rank, against the same batch in as many parts
// on one rank.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error_text.h"
#include "base/temp_folder.h"
#include "functors/stage_step.h"
#include "laws/compare.h"
#include "laws/planted.h"
#include "laws/rank_traces.h"
#include "models/test_models.h"
#include "ops/op_def.h"

namespace adjoint {
namespace {

Subject subject_of(const std::string& model, int64_t batch, int layers) {
  StepOptions options;
  options.eps = 1e-2;  // as in verify
  nlohmann::json settings = {{"layers", layers}, {"vocab", 37}, {"dropout", 0.1}};
  if (model == "char" || model == "gpt2") settings.update({{"hidden", 32}, {"heads", 2}});
  const BoundModel bound(find_model(model), {.batch = batch, .context = 8, .settings = settings});
  return {.forward = bound.forward(), .options = options, .seeds = {1}};
}

void expect_law(const Subject& subject, const std::string& text,
                const std::string& functor = "pipeline") {
  SCOPED_TRACE(text);
  Judge judge(subject);
  const Stack stack = parse_stack(text);
  size_t index = 0;
  while (index < stack.functors.size() && stack.functors[index].functor.name != functor) ++index;
  ASSERT_LT(index, stack.functors.size());
  const Verdict verdict = judge.judge(stack, index);
  EXPECT_TRUE(verdict.ok) << verdict.tensor << " is off by " << verdict.error << ", allowed "
                          << verdict.allowed;
  EXPECT_EQ(verdict.note, "");
}

TEST(Stages, EveryScheduleHasTheBitsOfItsParts) {
  const Subject subject = subject_of("char", 8, 4);
  for (const char* schedule : {"gpipe", "1f1b", "zero_bubble", "zb_h2"}) {
    expect_law(subject, std::string("pipeline(2, schedule=") + schedule + ", parts=4)");
    expect_law(subject, std::string("pipeline(4, schedule=") + schedule + ", parts=4)");
  }
  expect_law(subject, "pipeline(2, schedule=interleaved, parts=4, chunks=2)");
}

TEST(Stages, UntiedAndOddModels) {
  expect_law(subject_of("llama-tiny", 6, 3), "pipeline(3, parts=3)");
  expect_law(subject_of("llama-tiny", 5, 3), "pipeline(2, parts=2)");
  expect_law(subject_of("char", 7, 5), "pipeline(3, parts=4)");
}

TEST(Stages, FiveAndSixStages) {
  expect_law(subject_of("gpt2", 5, 6), "pipeline(5, parts=5)");
  expect_law(subject_of("gpt2", 4, 6), "pipeline(6, parts=4, schedule=zero_bubble)");
  expect_law(subject_of("llama-tiny", 6, 6),
             "pipeline(3, parts=6, schedule=interleaved, chunks=2)");
  expect_law(subject_of("llama-tiny", 4, 6), "pipeline(2, parts=4, cuts=[5])");
}

// What stages are held to is itself held to the plain step: one part is all of the batch.
TEST(Stages, OnePart) {
  const Subject subject = subject_of("char", 4, 4);
  expect_law(subject, "pipeline(2, parts=1)");
  expect_law(subject, "accumulate(1, tied=apart)", "accumulate");
  expect_law(subject, "accumulate(4, tied=apart)", "accumulate");
}

// All blocks of albert share one set of weights. Where these are themselves made of parameters, a
// matrix's gradient is a sum of terms of several stages, and so each of these is summed by itself.
TEST(Stages, SharedWeightsThatAreMadeOfParameters) {
  Judge judge(subject_of("albert-tiny", 4, 4));
  for (const std::string weights : {"codebook(k=4)", "dora(rank=2)", "qat(bits=8, group=8)"}) {
    for (const char* parts : {"pipeline(2)", "pipeline(2, schedule=zero_bubble)",
                              "pipeline(2, parts=1)", "accumulate(2, tied=apart)"}) {
      const std::string text = weights + " | " + parts;
      SCOPED_TRACE(text);
      const Stack stack = parse_stack(text);
      for (size_t i = 0; i < stack.functors.size(); ++i) {
        if (stack.functors[i].by_default) continue;
        const Verdict v = judge.judge(stack, i);
        EXPECT_TRUE(v.ok) << v.functor << ": " << v.tensor << " is off by " << v.error;
      }
    }
  }
}

// The readout's classes lie on several ranks, so the gradient of what it reads is a sum over ranks,
// with samples: the bias before it sums over these, part by part.
TEST(Stages, ABiasBeforeAReadoutInPieces) {
  Judge judge(subject_of("albert-tiny", 4, 2));
  for (const char* parts : {"pipeline(2)", "accumulate(2)"}) {
    const Stack stack = parse_stack(std::string("tensor_parallel(2) | ") + parts);
    for (size_t i = 0; i < stack.functors.size(); ++i) {
      if (stack.functors[i].by_default) continue;
      const Verdict v = judge.judge(stack, i);
      EXPECT_TRUE(v.ok) << v.functor << ": " << v.tensor << " is off by " << v.error;
    }
  }
}

TEST(Stages, GoesWithOthers) {
  const Subject subject = subject_of("char", 8, 4);
  for (const char* rest :
       {"bf16", "fp16", "lora(rank=4)", "checkpoint(every=1)", "checkpoint(every=2)",
        "accumulate(2)", "offload(optimizer)", "offload(activations)", "offload(parameters)",
        "data_parallel(2)", "data_parallel(2) | zero(1)", "data_parallel(2) | zero(3)",
        "tensor_parallel(2)"}) {
    expect_law(subject, std::string("pipeline(2, parts=2) | ") + rest);
  }
}

// What is gathered again for a backward pass is gathered by the stage that reads it.
TEST(Stages, WhatIsGatheredAgain) {
  Subject subject = subject_of("char", 6, 2);
  subject.forward = test_model("odd", {{"batch", 6}, {"seq", 8}});
  for (const char* schedule : {"1f1b", "zero_bubble"}) {
    expect_law(subject, std::string("pipeline(2, schedule=") + schedule + ") | tensor_parallel(2)");
  }
}

// What ends a block reads the state that an earlier stage made, as its first operand or its second.
TEST(Stages, OneResidualABlock) {
  Subject subject = subject_of("char", 6, 2);
  for (const char* sum : {"x + linear(gelu(n), 16, name=up)", "linear(gelu(n), 16, name=up) + x"}) {
    SCOPED_TRACE(sum);
    const std::string text =
        std::string("axes layers=4 h=16\nblock x[batch, seq, h]:\n") +
        "  n = linear(rms_norm(x), 24, name=down)\n  x = " + sum +
        "\nmodel tokens[batch, seq], targets[batch, seq]:\n"
        "  x = block^layers(embed(tokens, 37, 16, name=table))\n"
        "  loss = cross_entropy(linear(rms_norm(x), 37, name=readout), targets)\n";
    subject.forward = elaborate(parse_document(text, "one_residual"), "one_residual",
                                {.settings = {{"batch", 6}, {"seq", 8}}});
    for (const char* stack : {"pipeline(2)", "pipeline(2, cuts=[1])", "pipeline(4, parts=3)",
                              "pipeline(2, schedule=zero_bubble)"}) {
      expect_law(subject, stack);
    }
  }
  // A block that ends with an addition behind a chain of its own.
  subject.forward = test_model("odd", {{"batch", 6}, {"seq", 8}, {"fathoms", 3}});
  for (const char* stack : {"pipeline(2, cuts=[1])", "pipeline(2, cuts=[2])", "pipeline(3)"}) {
    expect_law(subject, stack);
  }
}

// A readout in chunks sums its gradient in several calls, all of which are of one slot.
TEST(Stages, AReadoutInChunks) {
  const Subject subject = subject_of("char", 8, 4);
  for (const char* schedule : {"1f1b", "zero_bubble", "zb_2p"}) {
    expect_law(subject, std::string("pipeline(4, schedule=") + schedule +
                            ", parts=4) | chunk_readout(rows=4) | recompute_cheap(within=1)");
  }
}

TEST(Stages, ASharedTableAndExperts) {
  Subject subject = subject_of("char", 6, 2);
  subject.forward = test_model("moe", {{"batch", 6}, {"seq", 8}});
  expect_law(subject, "pipeline(2, parts=3)");
  subject.forward = test_model("odd", {{"batch", 6}, {"seq", 8}});
  expect_law(subject, "pipeline(2, parts=3)");
}

// Adafactor's state of a tied table is read after numbers of it have been exchanged, and written in
// place only then.
TEST(Stages, EveryOptimizer) {
  for (const char* optimizer : {"adafactor", "muon", "lion", "sgd", "momentum"}) {
    SCOPED_TRACE(optimizer);
    Subject subject = subject_of("char", 4, 2);
    subject.options.optimizer = optimizer;
    expect_law(subject, "pipeline(2, parts=2)");
  }
}

// A reference repeats the choices that stages made of every part, in pieces of samples and of
// positions.
TEST(Stages, ChoicesOfExpertsAreThoseOfAllParts) {
  Subject subject = subject_of("char", 6, 2);
  subject.forward = test_model("moe", {{"batch", 10}, {"seq", 8}});
  for (const char* mesh :
       {"tensor_parallel(2, sequence=shards)", "tensor_parallel(2) | data_parallel(2)",
        "tensor_parallel(2, sequence=shards) | data_parallel(2)"}) {
    expect_law(subject, std::string("pipeline(2, parts=3) | ") + mesh, "tensor_parallel");
    expect_law(subject, std::string("accumulate(3) | ") + mesh, "tensor_parallel");
  }
}

TEST(Stages, AScheduleOfOnesOwn) {
  const TempFolder folder;
  const std::string file = folder / "mine.schedule";
  std::ofstream(file) << "schedule mine(stages = 2, parts = 3):\n"
                         "  rank 0: F0 F1 F2 B0 B1 B2\n"
                         "  rank 1: F0 F1 B0 F2 B1 B2\n";
  const Subject subject = subject_of("char", 6, 2);
  expect_law(subject, "pipeline(2, schedule=\"" + file + "\", parts=3)");
  const auto built = [&](const std::string& stack) {
    StepOptions options = subject.options;
    options.on_mesh = true;
    return step_of_stage(build_step(subject.forward, parse_stack(stack), options).scheme, 0);
  };
  EXPECT_NE(error_text([&] {
              built("pipeline(2, schedule=\"" + file + "\", parts=2)");
            }).find("is for 2 stages, 3 parts and 2 chunks, and the step has 2, 2 and 2"),
            std::string::npos);
  EXPECT_NE(error_text([&] {
              built("pipeline(2, schedule=\"" + (folder / "mine.txt").string() + "\", parts=2)");
            }).find("a schedule in a file is called NAME.schedule"),
            std::string::npos);
}

// A list whose slots of a chunk are not in the order of the parts sums in another order, and is
// judged as such; so is one that has slots for the weights of some parts alone.
TEST(Stages, ListsThatSumInAnotherOrder) {
  const TempFolder folder;
  const Subject subject = subject_of("char", 6, 2);
  const auto judged = [&](const std::string& lists) {
    const std::string file = folder / "mine.schedule";
    std::ofstream(file) << "schedule mine(stages = 2, parts = 3):\n" + lists;
    const std::string text = "pipeline(2, schedule=\"" + file + "\", parts=3)";
    expect_law(subject, text);
    const Stack stack = parse_stack(text);
    StepOptions options = subject.options;
    options.on_mesh = true;
    for (const Applied& applied : build_step(subject.forward, stack, options).applied) {
      if (!applied.name.starts_with("pipeline")) continue;
      EXPECT_EQ(applied.law, law_of(stack));
    }
    return law_of(stack);
  };
  EXPECT_EQ(judged("  rank 0: F0 F1 F2 B2 B1 B0\n  rank 1: F0 F1 F2 B2 B1 B0\n"),
            Law::kReassociating);
  EXPECT_EQ(judged("  rank 0: F2 F0 F1 B0 B1 B2\n  rank 1: F2 F0 F1 B0 B1 B2\n"),
            Law::kReassociating);
  EXPECT_EQ(judged("  rank 0: F0 F1 F2 B0 B1 B2 W2 W1 W0\n  rank 1: F0 B0 F1 B1 F2 B2\n"),
            Law::kReassociating);
  EXPECT_EQ(judged("  rank 0: F0 F1 F2 B0 B1 B2 W1\n  rank 1: F0 B0 F1 B1 F2 B2\n"),
            Law::kReassociating);
  EXPECT_EQ(judged("  rank 0: F0 F1 F2 B0 B1 W1 B2\n  rank 1: F0 B0 F1 B1 W1 F2 B2\n"),
            Law::kExact);
}

// A stack of others cannot promise more than a list that it is told.
TEST(Stages, AStackOfOthersKeepsItsPromise) {
  const TempFolder folder;
  const std::string list = folder / "mine.schedule", own = folder / "own.functor";
  std::ofstream(list) << "schedule mine(stages = 2, parts = 2):\n"
                         "  rank 0: F0 F1 B1 B0\n"
                         "  rank 1: F0 F1 B1 B0\n";
  std::ofstream(own) << "functor own(order: text) = pipeline(2, schedule=order)\n  law exact\n";
  EXPECT_NE(
      error_text([&] { parse_stack(own + "(\"" + list + "\")"); }).find("says that it is exact"),
      std::string::npos);
}

// One tensor per cut and direction and part, and numbers of the norm together.
TEST(Stages, OneMessagePerCutDirectionAndPart) {
  const Subject subject = subject_of("llama-tiny", 8, 4);
  StepOptions options = subject.options;
  options.on_mesh = true;
  const Scheme whole =
      build_step(subject.forward, parse_stack("pipeline(4, parts=4)"), options).scheme;
  for (int stage = 0; stage < 4; ++stage) {
    const Scheme step = step_of_stage(whole, stage);
    int sent = 0, received = 0;
    for (const Morphism& m : step.morphisms) {
      if (m.section != Section::kBody || !op_named(m.op).to_one_rank) continue;
      ++(m.inputs.empty() ? received : sent);
    }
    const int neighbours = stage == 0 || stage == 3 ? 1 : 2;
    EXPECT_EQ(sent, 4 * neighbours) << stage;
    EXPECT_EQ(received, 4 * neighbours) << stage;
  }
}

TEST(Stages, WhatCannotBeIsRefused) {
  const Subject subject = subject_of("char", 8, 4);
  StepOptions options = subject.options;
  options.on_mesh = true;
  const auto told = [&](const std::string& stack) {
    return error_text(
        [&] { step_of_stage(build_step(subject.forward, parse_stack(stack), options).scheme, 0); });
  };
  EXPECT_NE(told("pipeline(5)").find("5 pieces, and the chain has 4 blocks"), std::string::npos);
  EXPECT_NE(told("pipeline(2, parts=9)").find("at most 8 parts"), std::string::npos);
  EXPECT_EQ(told("pipeline(2, parts=2, cuts=[1, 2])"),
            "pipeline: 2 pieces have one cut fewer, and cuts=[1, 2] says another number");
  EXPECT_NE(told("pipeline(2, parts=2, schedule=2f2b)").find("found '2f2b'"), std::string::npos);
  EXPECT_NE(told("pipeline(2, parts=3, schedule=interleaved, chunks=2)"), "");
  EXPECT_NE(told("pipeline(2, parts=2) | checkpoint(every=3)").find("checkpoint"),
            std::string::npos);
}

}  // namespace
}  // namespace adjoint
