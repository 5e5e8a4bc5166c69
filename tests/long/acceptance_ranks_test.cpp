// T1, T4, T8 and T11 of what goes wrong elsewhere (tests/train/acceptance_test.cpp has the others),
// with the step on several ranks, which are threads of this process. tests/laws/ranks_test.cpp has
// a few of these.
#include <gtest/gtest.h>

#include "laws/compare.h"
#include "laws/verify.h"

namespace adjoint {
namespace {

Subject subject_of(const char* preset, int64_t batch, nlohmann::json more = {}) {
  nlohmann::json settings = {{"layers", 2}, {"vocab", 37}, {"dropout", 0.1}};
  if (std::string_view(preset) == "char") settings.update({{"hidden", 32}, {"heads", 4}});
  if (more.is_object()) settings.update(more);
  const BoundModel bound(find_model(preset), {.batch = batch, .context = 8, .settings = settings});
  StepOptions options;
  options.eps = 1e-2;  // as in verify
  options.on_mesh = true;
  return {.forward = bound.forward(), .options = options, .seeds = {1}};
}

Scheme step_of(const Subject& subject, const std::string& stack) {
  return build_step(subject.forward, parse_stack(stack), subject.options).scheme;
}

// Every functor that the stack names keeps its law.
void expect_laws(const Subject& subject, const std::string& text) {
  SCOPED_TRACE(text);
  Judge judge(subject);
  const Stack stack = parse_stack(text);
  for (size_t i = 0; i < stack.functors.size(); ++i) {
    if (stack.functors[i].by_default) continue;
    const Verdict v = judge.judge(stack, i);
    EXPECT_TRUE(v.ok) << v.functor << ": " << v.tensor << " is off by " << v.error << ", allowed "
                      << v.allowed;
  }
}

// Data of traces are ragged: every sample but the first ends early, the second one has no target at
// all, and one target in seven is masked. A mean of means would be off by percents.
TEST(AcceptanceOnRanks, T1_RaggedCountsGiveTheSameGradientsUnderEverySplit) {
  for (const char* preset : {"char", "llama-tiny"}) {
    for (const int64_t batch : {12, 13}) {
      const Subject subject = subject_of(preset, batch);
      const InputRanges ranges = input_ranges(subject.forward);
      const auto traced = [&](const std::string& stack) {
        return trace_run(step_of(subject, stack), ranges, {.steps = 1});
      };
      const Trace plain = traced("");
      for (const char* parts : {"1", "2", "4"}) {
        for (const char* ranks :
             {"data_parallel(1)", "data_parallel(2)", "data_parallel(3)", "tensor_parallel(2)",
              "data_parallel(2) | tensor_parallel(2)", "pipeline(1, parts=2)",
              "pipeline(2, parts=3)", "pipeline(2, parts=2, schedule=zero_bubble)",
              "data_parallel(2) | pipeline(2, parts=1)"}) {
          const std::string stack = std::string("accumulate(") + parts + ") | " + ranks;
          int compared = 0;
          for (const auto& [key, error] : errors_against(traced(stack), plain)) {
            EXPECT_LT(error, 2e-5)
                << preset << ", " << batch << ", " << stack << ": " << to_string(key);
            compared += key.kind == TensorKey::Kind::kGradient;
          }
          EXPECT_GT(compared, 15) << stack;
        }
      }
    }
  }
}

TEST(AcceptanceOnRanks, T4_RecomputationDataParallelAndFusionAtHidden128And256) {
  for (const int hidden : {128, 256}) {
    const Subject subject = subject_of("char", 4, {{"hidden", hidden}});
    for (const char* fuse : {"", " | -fuse"}) {
      expect_laws(subject, std::string("checkpoint(block) | data_parallel(2)") + fuse);
      expect_laws(subject, std::string("checkpoint(block) | tensor_parallel(2)") + fuse);
    }
  }
}

// A table that is read at both ends of the model is one parameter with one update, whose gradient
// is the sum of both uses; it is gathered for each use where ranks hold pieces of it.
TEST(AcceptanceOnRanks, T8_TiedTablesStayTied) {
  const auto parameters = [](const Scheme& step) {
    std::map<std::string, int> count;
    for (const Carry& c : step.carries) {
      if (step[c.in].role == Role::kParameter) ++count[to_string(step[c.in].source)];
    }
    return count;
  };
  const std::vector<std::string> stacks = {"data_parallel(2) | zero(3)",
                                           "data_parallel(3) | zero(3)",
                                           "data_parallel(2) | zero(3) | accumulate(2)",
                                           "tensor_parallel(2)",
                                           "tensor_parallel(2, sequence=yes)",
                                           "data_parallel(2) | zero(3) | tensor_parallel(2)",
                                           "pipeline(2, parts=3)",
                                           "pipeline(2, parts=2) | tensor_parallel(2)",
                                           "data_parallel(2) | zero(3) | pipeline(2, parts=2)"};
  for (const Subject& subject :
       {subject_of("char", 6), subject_of("llama-tiny", 6, {{"tied", 1}})}) {
    const auto plain = parameters(step_of(subject, ""));
    for (const std::string& stack : stacks) {
      EXPECT_EQ(parameters(step_of(subject, stack)), plain) << stack;
      expect_laws(subject, stack);
    }
  }
}

TEST(AcceptanceOnRanks, T11_AdaptersAndCodesWithEverySharding) {
  const Subject subject = subject_of("char", 8);
  const std::vector<std::string> shardings = {"data_parallel(2)",
                                              "data_parallel(2) | zero(1)",
                                              "data_parallel(2) | zero(2)",
                                              "data_parallel(2) | zero(3)",
                                              "data_parallel(3) | zero(3)",
                                              "tensor_parallel(2)",
                                              "tensor_parallel(2, sequence=yes)",
                                              "tensor_parallel(2, sequence=shards)",
                                              "data_parallel(2) | tensor_parallel(2) | zero(3)",
                                              "pipeline(2, parts=2)",
                                              "data_parallel(2) | zero(1) | pipeline(2, parts=2)",
                                              "data_parallel(2) | zero(2) | pipeline(2, parts=2)",
                                              "data_parallel(2) | zero(3) | pipeline(2, parts=2)",
                                              "tensor_parallel(2) | pipeline(2, parts=3)"};
  for (const std::string& sharding : shardings) {
    for (const char* rest :
         {"lora(rank=4)", "quantize(int8, group=8) | lora(rank=4) | checkpoint(every=1)",
          "qlora(rank=4, group=8) | accumulate(2)"}) {
      expect_laws(subject, sharding + " | " + rest);
    }
  }
}

}  // namespace
}  // namespace adjoint
