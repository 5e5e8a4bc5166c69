// Ten steps of tiny models, dropout on, beside the same ten steps of the float64 reference: two
// runs that share the scheme, the seed, the data and what a router chose.
#include <gtest/gtest.h>

#include "device/parallel.h"
#include "functors/pipeline.h"
#include "functors/reference.h"
#include "kernels/harness.h"
#include "models/test_models.h"
#include "run/parameters.h"
#include "train/bound_model.h"
#include "train/trainer.h"

namespace adjoint {
namespace {

constexpr int kSteps = 10;
constexpr int64_t kBatch = 3, kSeed = 11;

// The step, with every parameter's gradient among its outputs so that it outlives the update.
struct Traced {
  Scheme step;
  std::vector<std::string> names;  // of the gradients, which are the last outputs
};

Traced traced_step(const std::string& model, nlohmann::json settings, int64_t context) {
  ModelSizes sizes{.batch = kBatch, .context = context, .settings = std::move(settings)};
  Traced traced{training_step(BoundModel(find_model(model), sizes).forward(), {}), {}};
  for (const Value in : std::vector<Value>(traced.step.inputs)) {
    if (traced.step[in].role != Role::kParameter) continue;
    const std::string path = traced.step[in].source.path;
    const auto gradient = traced.step.find({path, "grad"});
    EXPECT_TRUE(gradient) << path;
    traced.step.outputs.push_back(*gradient);
    traced.names.push_back(path);
  }
  return traced;
}

class TracedRun {
 public:
  TracedRun(const Scheme& step, bool reference)
      : run_(step, make_plan(step, {.threads = num_threads()}),
             {.reference = reference, .poison = true}) {}

  Run& run() { return run_; }

  void step(int number, int64_t vocab) {
    const Scheme& s = run_.scheme();
    write_batch(run_, number, vocab, kSeed);
    run_.set_number(input_named(s, "rate"), 1e-3 * (1 + number));
    run_.step();
  }

 private:
  Run run_;
};

// Two runs that drift apart, or a reference that begins every step where the run that it judges
// stands: Adam turns rounding into drift where gradients are small, which says nothing of a step.
enum class Drift { kYes, kNo };

void expect_golden(const std::string& model, const nlohmann::json& settings, int64_t context,
                   int64_t vocab, Drift drift) {
  const Traced traced = traced_step(model, settings, context);
  Scheme kept = traced.step;
  const std::vector<Value> choices = choices_of(kept);
  kept.outputs.insert(kept.outputs.end(), choices.begin(), choices.end());
  TracedRun plain(kept, false), reference(to_reference(with_given_choices(traced.step)), true);
  initialize(plain.run(), kSeed);
  // Both begin with the same numbers: the float32 ones.
  const Scheme &s = plain.run().scheme(), &r = reference.run().scheme();
  const auto copy_state = [&] {
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      if (!s[s.inputs[i]].init) continue;
      ASSERT_EQ(s[s.inputs[i]].source, r[r.inputs[i]].source);
      reference.run().set_values(r.inputs[i], plain.run().values(s.inputs[i]));
    }
  };
  copy_state();
  const double tolerance = drift == Drift::kYes ? 1e-5 : 5e-6;
  double worst = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (drift == Drift::kNo) copy_state();
    plain.step(step, vocab);
    for (const Value choice : choices) {
      reference.run().set_values(*r.find(s[choice].source), plain.run().values(choice));
    }
    reference.step(step, vocab);
    const double loss = plain.run().number(s.outputs[0]),
                 want = reference.run().number(r.outputs[0]);
    EXPECT_LT(std::abs(loss - want) / want, 1e-5) << model << " loss of step " << step;
    const size_t first = r.outputs.size() - traced.names.size();
    for (size_t g = 0; g < traced.names.size(); ++g) {
      const double error = relative_error(plain.run().values(s.outputs[first + g]),
                                          reference.run().values(r.outputs[first + g]));
      worst = std::max(worst, error);
      EXPECT_LT(error, tolerance) << model << " step " << step << ", gradient of "
                                  << traced.names[g];
    }
  }
  std::printf("%s: worst relative error of a gradient over %d steps: %.2e\n", model.c_str(), kSteps,
              worst);
}

TEST(GoldenStep, TinyGpt2) {
  expect_golden("char",
                {{"layers", 2}, {"hidden", 48}, {"heads", 3}, {"vocab", 37}, {"dropout", 0.1}}, 20,
                37, Drift::kNo);
}

TEST(GoldenStep, TinyLlama) {
  expect_golden("llama-tiny", {{"layers", 2}, {"vocab", 41}, {"dropout", 0.1}}, 20, 41,
                Drift::kYes);
}

class GoldenTestModel : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTestModel, AgreesWithTheReference) {
  expect_golden(test_model_file(GetParam()), {{"dropout", 0.1}}, 16, kTestVocab, Drift::kNo);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTestModel, testing::ValuesIn(kTestModels),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace adjoint
