// Laws of steps that several ranks run, threads of this process: a stack on a mesh against the same
// stack on one rank.
#include <gtest/gtest.h>

#include <fstream>

#include "analysis/totals.h"
#include "base/error_text.h"
#include "base/temp_folder.h"
#include "laws/compare.h"
#include "laws/planted.h"
#include "laws/rank_traces.h"
#include "models/test_models.h"

namespace adjoint {
namespace {

Subject subject_of(const std::string& model, int64_t batch) {
  StepOptions options;
  options.eps = 1e-2;  // as in verify
  if (model == "moe" || model == "odd") {
    Scheme forward = test_model(model, {{"batch", static_cast<double>(batch)}, {"seq", 8}});
    return {.forward = std::move(forward), .options = options, .seeds = {1}};
  }
  const bool calm = model == "char without dropout";
  nlohmann::json settings = {{"layers", 2}, {"vocab", 37}, {"dropout", calm ? 0 : 0.1}};
  if (model == "char" || calm) settings.update({{"hidden", 32}, {"heads", 2}});
  const BoundModel bound(find_model(calm ? "char" : model),
                         {.batch = batch, .context = 8, .settings = settings});
  return {.forward = bound.forward(), .options = options, .seeds = {1}};
}

size_t index_of(const Stack& stack, const std::string& name) {
  for (size_t i = 0; i < stack.functors.size(); ++i) {
    if (stack.functors[i].functor.name == name) return i;
  }
  ADD_FAILURE() << "no " << name << " in " << print(stack);
  return 0;
}

void expect_law(const std::string& model, int64_t batch, const std::string& text,
                const std::string& functor = "data_parallel") {
  SCOPED_TRACE(model + ", " + std::to_string(batch) + " samples, " + text);
  Judge judge(subject_of(model, batch));
  const Stack stack = parse_stack(text);
  const Verdict verdict = judge.judge(stack, index_of(stack, functor));
  EXPECT_TRUE(verdict.ok) << verdict.tensor << " is off by " << verdict.error << ", allowed "
                          << verdict.allowed;
  EXPECT_FALSE(verdict.tensor.empty() && verdict.law != Law::kExact) << "nothing was compared";
  EXPECT_EQ(verdict.note, "");
}

TEST(Ranks, DataParallelKeepsItsLawOnEveryModel) {
  for (const char* model : {"char", "llama-tiny", "moe", "odd"}) {
    expect_law(model, 6, "data_parallel(2)");
    expect_law(model, 6, "data_parallel(3)");
  }
}

// The last rank's samples are not all there; what pads them counts for nothing.
TEST(Ranks, AnUnevenBatch) {
  for (const char* model : {"char", "llama-tiny"}) {
    expect_law(model, 5, "data_parallel(2)");
    expect_law(model, 7, "data_parallel(3)");
    expect_law(model, 5, "data_parallel(4)");  // the last rank has no sample at all
  }
}

TEST(Ranks, DataParallelGoesWithTheOthers) {
  for (const char* rest :
       {"accumulate(2)", "checkpoint(every=1)", "bf16", "fp16", "lora(rank=4)", "bf16_weights",
        "moments", "ema", "offload(optimizer)", "bf16 | checkpoint(every=1) | accumulate(2)"}) {
    expect_law("char", 6, std::string("data_parallel(2) | ") + rest);
  }
  expect_law("char", 7, "data_parallel(3) | accumulate(2)");
  expect_law("char", 6, "data_parallel(2, reduce=part) | accumulate(3)");
  expect_law("moe", 6, "data_parallel(2) | accumulate(2) | checkpoint(every=1)");
}

// The other functors of the stack keep their laws on a mesh, too.
TEST(Ranks, OthersKeepTheirLawsOnAMesh) {
  expect_law("char", 6, "data_parallel(2) | checkpoint(every=1)", "checkpoint");
  expect_law("char", 8, "data_parallel(2) | accumulate(2)", "accumulate");
  expect_law("char", 6, "data_parallel(2) | offload(optimizer)", "offload");
  // A sum over parts grows in place, so no product ends in it.
  expect_law("llama-tiny", 4, "data_parallel(2, reduce=part) | accumulate(2) | fuse_product_map");
  // Found by a random mesh: what is recomputed is not joined with the product before it, and
  // adapters lay otherwise beside such a product.
  expect_law("char", 3, "tensor_parallel(2) | lora(rank=4) | recompute(attention)", "recompute");
}

// Masked and ragged targets (T1): the gradient is that of all tokens, however samples are split. A
// mean of means would be off by far more.
TEST(Ranks, RaggedBatchesAreTheSameUnderEverySplit) {
  const Subject subject = subject_of("char", 8);
  const InputRanges ranges = input_ranges(subject.forward);
  StepOptions options = subject.options;
  options.on_mesh = true;
  const auto traced = [&](const std::string& stack) {
    return trace_run(build_step(subject.forward, parse_stack(stack), options).scheme, ranges,
                     {.steps = 1});
  };
  const Trace plain = traced("");
  for (const int parts : {1, 2, 4}) {
    for (const int ranks : {1, 2}) {
      const std::string stack = "accumulate(" + std::to_string(parts) + ") | data_parallel(" +
                                std::to_string(ranks) + ")";
      int compared = 0;
      for (const auto& [key, error] : errors_against(traced(stack), plain)) {
        EXPECT_LT(error, 1e-5) << stack << ": " << to_string(key);
        compared += key.kind == TensorKey::Kind::kGradient;
      }
      EXPECT_GT(compared, 20) << stack;
    }
  }
}

TEST(Ranks, VerifyTakesAStackWithAMesh) {
  const ModelText model = find_model("char");
  const Report report =
      verify_model(model, parse_stack("data_parallel(2) | accumulate(3)"), {.seeds = 1});
  EXPECT_TRUE(report.ok) << report.reason;
  EXPECT_EQ(report.law, Law::kReassociating);
}

// The copies keep what ranks divide, and an uneven batch stays uneven.
TEST(Ranks, CopiesOfAModelAreAsUnevenAsItIs) {
  const ModelText model = find_model("gpt2");
  const auto batch_of = [&](const std::string& stack, int64_t batch) {
    const auto subjects = subjects_for(model, parse_stack(stack), {.sizes = {.batch = batch}});
    const Scheme& forward = subjects.front().forward;
    for (const Value in : forward.inputs) {
      if (forward[in].role == Role::kInput) return forward[in].type.dim(0);
    }
    return int64_t{0};
  };
  EXPECT_EQ(batch_of("data_parallel(3)", 9), 9);
  EXPECT_NE(batch_of("data_parallel(3)", 0) % 3, 0);
  EXPECT_NE(batch_of("data_parallel(4) | accumulate(3)", 0) % 4, 0);
  const Checkup checkup = checkup_for(model, parse_stack("data_parallel(3) | zero(3)"), {});
  EXPECT_EQ(checkup.unseen, std::vector<std::string>{});
}

// zero has data_parallel's bits: its sums are made at the same places and in the same order.
TEST(Ranks, ZeroIsExact) {
  for (const char* model : {"char", "llama-tiny", "moe", "odd"}) {
    for (const char* stage : {"1", "2", "3"}) {
      expect_law(model, 6, std::string("data_parallel(2) | zero(") + stage + ")", "zero");
    }
  }
  expect_law("char", 7, "data_parallel(3) | zero(1)", "zero");
  expect_law("char", 7, "data_parallel(3) | zero(3)", "zero");
  // More ranks than a router has experts: some of them hold no row of it.
  for (const char* stage : {"1", "2", "3"}) {
    expect_law("moe", 6, std::string("data_parallel(5) | zero(") + stage + ")", "zero");
  }
}

TEST(Ranks, TensorParallelKeepsItsLawOnEveryModel) {
  for (const char* model : {"char", "llama-tiny", "moe", "odd"}) {
    expect_law(model, 3, "tensor_parallel(2)", "tensor_parallel");
    expect_law(model, 3, "tensor_parallel(2, sequence=yes)", "tensor_parallel");
    expect_law(model, 3, "tensor_parallel(2, sequence=shards)", "tensor_parallel");
  }
}

TEST(Ranks, TensorParallelGoesWithTheOthers) {
  for (const char* rest :
       {"accumulate(2)", "checkpoint(every=1)", "bf16", "fp16", "lora(rank=4)", "bf16_weights",
        "moments", "ema", "offload(optimizer)", "quantize(int8, group=8) | lora(rank=4)",
        "data_parallel(2)", "data_parallel(2) | accumulate(2)", "-join_projections",
        "bf16 | checkpoint(every=1) | accumulate(2)"}) {
    for (const char* sequence : {"no", "yes"}) {
      expect_law("char", 4, std::string("tensor_parallel(2, sequence=") + sequence + ") | " + rest,
                 "tensor_parallel");
    }
  }
  expect_law("llama-tiny", 4, "tensor_parallel(2) | data_parallel(2) | bf16", "tensor_parallel");
  // Without dropout positions stay split from the tokens on, and tokens come in parts.
  for (const char* model : {"char without dropout", "llama-tiny", "mixtral-tiny"}) {
    expect_law(model, 4, "tensor_parallel(2, sequence=yes) | accumulate(2)", "tensor_parallel");
  }
  // What pads the pieces of parameters stays zeros, or the whole is worked on.
  expect_law("char", 6, "data_parallel(3) | zero(1) | dora(rank=4)", "zero");
  // Samples that pad a part, or a rank, count for nothing in a loss whose classes are split.
  expect_law("char", 5, "tensor_parallel(2) | accumulate(2)", "tensor_parallel");
  expect_law("char", 5, "tensor_parallel(2) | data_parallel(2) | accumulate(2)", "tensor_parallel");
}

TEST(Ranks, ZeroIsExactBesideTensorParallel) {
  for (const char* model : {"char", "llama-tiny"}) {
    for (const char* stage : {"1", "2", "3"}) {
      expect_law(model, 4,
                 std::string("data_parallel(2) | tensor_parallel(2) | zero(") + stage + ")",
                 "zero");
    }
  }
  expect_law("char", 5, "data_parallel(3) | tensor_parallel(2, sequence=yes) | zero(3)", "zero");
}

TEST(Ranks, ZeroGoesWithTheOthers) {
  for (const char* stage : {"zero(1)", "zero(2)", "zero(3)"}) {
    for (const char* rest :
         {"accumulate(3)", "bf16", "fp16", "checkpoint(every=1)", "lora(rank=4)", "bf16_weights",
          "moments", "ema", "quantize(int8, group=8) | lora(rank=4)",
          "bf16 | checkpoint(every=1) | accumulate(3)"}) {
      expect_law("char", 6, std::string("data_parallel(2) | ") + stage + " | " + rest, "zero");
    }
  }
  // What is computed of parameters alone has the same bits wherever they are kept.
  expect_law("char", 6, "data_parallel(2) | zero(1) | prompt(2)", "zero");
  expect_law("moe", 6, "data_parallel(2, reduce=part) | zero(3) | dora(rank=4)", "zero");
  expect_law("char", 6, "data_parallel(2) | zero(3) | checkpoint(every=1)", "checkpoint");
}

// Found by a random mesh: the gradient of a codebook's centres was compared with that of the matrix
// which they stand for, whose sum over ranks is made later. It also had its name, so that nobody
// said of it what is said of gradients of parameters.
TEST(Ranks, GradientsOfACodebookAreItsCentres) {
  expect_law("odd", 5, "data_parallel(2) | zero(2) | codebook", "codebook");
  for (const char* stage : {"1", "2", "3"}) {
    for (const char* codebook : {"codebook", "codebook(k=4, group=8)"}) {
      const std::string stack = std::string("data_parallel(3) | zero(") + stage + ") | " + codebook;
      expect_law("char", 7, stack, "zero");
      expect_law("char", 7, stack + " | accumulate(2)", "zero");
    }
  }
}

// A matrix that is made of a parameter as a whole, or of several by rows, is split as it would be
// if it were the parameter.
TEST(Ranks, TensorParallelSplitsMatricesThatAreMade) {
  for (const char* made : {"qat(group=tensor)", "codebook", "codebook(k=4, group=8)"}) {
    for (const char* ranks : {"2", "2, sequence=yes"}) {
      const std::string stack = std::string("tensor_parallel(") + ranks + ") | " + made;
      expect_law("char", 3, stack, "tensor_parallel");
      const Subject subject = subject_of("char", 3);
      StepOptions options = subject.options;
      options.on_mesh = true;
      const Scheme step = build_step(subject.forward, parse_stack(stack), options).scheme;
      for (const char* path : {"block[0].qkv", "block[0].up"}) {
        int products = 0;
        for (const Morphism& m : step.morphisms) {
          if (!op_named(m.op).multiplies || m.phase != Phase::kForward) continue;
          if (!m.source.path.starts_with(path)) continue;
          ++products;
          const Placement* placed = placement_over(step[m.outputs[0]], "tensor");
          EXPECT_TRUE(placed && placed->spread == Spread::kSharded) << stack << ": " << path;
        }
        EXPECT_GT(products, 0) << stack << ": " << path;
      }
    }
  }
}

// What is kept of zero is a share of what data_parallel keeps.
TEST(Ranks, ZeroKeepsPieces) {
  const Subject subject = subject_of("char", 6);
  StepOptions options = subject.options;
  options.on_mesh = true;
  const auto bytes = [&](const std::string& stack, Role role) {
    const Scheme step = build_step(subject.forward, parse_stack(stack), options).scheme;
    int64_t all = 0;
    for (const Value in : step.inputs) {
      if (step[in].role == role && step[in].type.rank() > 0) all += step[in].type.bytes().count;
    }
    return all;
  };
  const int64_t state = bytes("data_parallel(2)", Role::kState);
  const int64_t parameters = bytes("data_parallel(2)", Role::kParameter);
  // Axes of 37 tokens are cut into 19 and 18.
  EXPECT_NEAR(static_cast<double>(bytes("data_parallel(2) | zero(1)", Role::kState)), state / 2.0,
              2 * 32 * 4);
  for (const char* stage : {"1", "2", "3"}) {
    const std::string stack = std::string("data_parallel(2) | zero(") + stage + ")";
    EXPECT_NEAR(static_cast<double>(bytes(stack, Role::kParameter)), parameters / 2.0, 2 * 32 * 4);
  }
  const Scheme whole = build_step(subject.forward, parse_stack(""), options).scheme;
  for (const char* stack : {"data_parallel(2) | zero(3)", "data_parallel(3) | zero(3)"}) {
    const Scheme step = build_step(subject.forward, parse_stack(stack), options).scheme;
    EXPECT_EQ(num_parameters(step), num_parameters(whole)) << stack;
    EXPECT_EQ(num_trained(step), num_trained(whole)) << stack;
  }
  EXPECT_EQ(error_text([&] { bytes("zero(1)", Role::kState); }),
            "zero: there are no ranks of data to shard over; add data_parallel(n)");
}

// What is wrong is found and named on a mesh as it is on one rank.
TEST(Ranks, TheFirstWrongObjectIsNamed) {
  const Stack stack = with_planted(
      {planted("louder", Law::kExact, FunctorPhase::kExact, scaled("block[0].down", 1.001))},
      "data_parallel(2)");
  const Report report = verify_stack({subject_of("char", 6)}, stack);
  EXPECT_FALSE(report.ok);
  EXPECT_TRUE(has(report.reason, "law of louder broken: first at block[0].down (op "))
      << report.reason;
}

// A reduction that leaves a rank out must be found. The gradient of the ranks differs then from
// that of one, and so does what comes of it.
TEST(Ranks, AWrongReductionIsCaught) {
  const auto halved = [](const Scheme& before, Application& application) {
    Scheme after = before;
    for (Morphism& m : after.morphisms) {
      if (m.op != "all_gather") continue;
      ++application.matches;
      // Gathers the terms instead of their sums: the sum over ranks is never made.
      for (const Morphism& maker : before.morphisms) {
        if (maker.outputs[0] != m.inputs[0] || maker.op != "reduce_scatter") continue;
        m = {.op = "scale",
             .inputs = {maker.inputs[0]},
             .outputs = m.outputs,
             .attrs = {{"by", 2.0}},
             .source = m.source,
             .phase = m.phase,
             .section = m.section};
        return after;
      }
    }
    return after;
  };
  const Stack stack = with_planted(
      {planted("wrong", Law::kReassociating, FunctorPhase::kExact, halved)}, "data_parallel(2)");
  Judge judge(subject_of("char", 6));
  const std::string told = error_text([&] { judge.judge(stack, 0); });
  EXPECT_TRUE(has(told, "rank 1 has another ")) << told;
  EXPECT_TRUE(has(told, "and all ranks should have the same")) << told;
}

// The term of rank 0 is left out of one sum over ranks: all ranks agree on what is wrong.
Scheme without_a_term(const Scheme& before, Application& application) {
  Scheme after = before;
  for (size_t i = 0; i < after.morphisms.size(); ++i) {
    if (after.morphisms[i].op != "reduce_scatter") continue;
    const Source place = mesh_coordinate("data");
    const auto known = after.find(place);
    const Value coordinate =
        known
            ? *known
            : after.add_input({.type = {Dtype::kI32, {}}, .source = place, .role = Role::kControl});
    const Value term = after.morphisms[i].inputs[0];
    const Phase phase = after.morphisms[i].phase;
    const Value number = after.add({.type = {Dtype::kF32, {}}, .source = {"number", "f32"}});
    Object like = after[term];
    like.source = with_facet(like.source, "forgotten");
    const Value forgotten = after.add(like);
    after.morphisms[i].inputs[0] = forgotten;
    const std::vector<Morphism> made = {{.op = "cast",
                                         .inputs = {coordinate},
                                         .outputs = {number},
                                         .attrs = {{"dtype", std::string("f32")}},
                                         .source = {"number", "f32"},
                                         .phase = phase},
                                        {.op = "mul",
                                         .inputs = {term, number},
                                         .outputs = {forgotten},
                                         .source = like.source,
                                         .phase = phase}};
    after.morphisms.insert(after.morphisms.begin() + static_cast<int64_t>(i), made.begin(),
                           made.end());
    ++application.matches;
    return after;
  }
  return after;
}

TEST(Ranks, AForgottenTermIsCaughtAndNamed) {
  for (const char* rest : {"data_parallel(2) | zero(2)"}) {
    const Stack stack = with_planted(
        {planted("forgetful", Law::kReassociating, FunctorPhase::kExact, without_a_term)}, rest);
    const Report report = verify_stack({subject_of("char", 6)}, stack);
    EXPECT_FALSE(report.ok) << rest;
    EXPECT_TRUE(has(report.reason, "law of forgetful broken: first at ")) << report.reason;
    EXPECT_TRUE(has(report.reason, ":grad")) << report.reason;
  }
}

// What data_parallel and zero(1) say, written by a user, is the same step.
TEST(Ranks, APlacementOfAUsersOwnWorksLikeOurs) {
  const TempFolder folder;
  const std::filesystem::path file = folder / "workers.functor";
  std::ofstream(file) << "# Samples and moments over k workers.\n"
                         "functor workers(k = 3):\n"
                         "  law reassociating\n"
                         "  mesh data = k\n"
                         "  object input -> sharded along samples over data\n"
                         "  object optimizer_state -> sharded over data\n"
                         "  object parameter -> sharded over data\n"
                         "  object parameter -> kept\n";
  const Subject subject = subject_of("char", 7);
  StepOptions options = subject.options;
  options.on_mesh = true;
  const auto step = [&](const std::string& stack) {
    return print(build_step(subject.forward, parse_stack(stack), options).scheme);
  };
  EXPECT_EQ(step(file.string()), step("data_parallel(3) | zero(1)"));
  EXPECT_EQ(step(file.string() + "(k=2) | accumulate(2)"),
            step("data_parallel(2) | zero(1) | accumulate(2)"));
  const Report report = verify_stack({subject}, parse_stack(file.string() + "(2)"));
  EXPECT_TRUE(report.ok) << report.reason;
  EXPECT_EQ(report.law, Law::kReassociating);
  // One that claims more than it keeps is refused like ours would be.
  std::ofstream(file) << "functor workers(k = 3):\n  law exact\n  mesh workers = k\n"
                         "  object input -> sharded along samples over workers\n";
  const Report broken = verify_stack({subject}, parse_stack(file.string() + "(2)"));
  EXPECT_FALSE(broken.ok);
  EXPECT_TRUE(has(broken.reason, "law of workers")) << broken.reason;
}

}  // namespace
}  // namespace adjoint
