// The models of tests/models learn: on a batch that stays the same the loss falls, dropout on.
#include "models/test_models.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/parallel.h"
#include "functors/pipeline.h"
#include "run/parameters.h"
#include "train/trainer.h"

namespace adjoint {
namespace {

class TestModel : public testing::TestWithParam<const char*> {};

TEST_P(TestModel, LearnsABatchByHeart) {
  const Scheme step = training_step(test_model(GetParam()), {});
  adjoint::Run run(step, make_plan(step, {.threads = num_threads()}), {.poison = true});
  initialize(run, 5);
  run.set_number(input_named(step, "rate"), 3e-3);
  double first = 0, last = 0;
  for (int i = 0; i < 30; ++i) {
    write_batch(run, 0);
    run.step();
    last = run.number(step.outputs[0]);
    if (i == 0) first = last;
  }
  // It begins where every token is as likely as any other, but for what small weights add.
  EXPECT_NEAR(first, std::log(kTestVocab), 0.2);
  EXPECT_LT(last, 0.7 * first);
}

INSTANTIATE_TEST_SUITE_P(All, TestModel, testing::ValuesIn(kTestModels),
                         [](const auto& info) { return std::string(info.param); });

// And so do the published designs that come with Adjoint, in their smallest presets.
class Design : public testing::TestWithParam<std::string> {};

TEST_P(Design, LearnsABatchByHeart) {
  const ModelText text = find_model(GetParam());
  const Document document = parse_document(text.text, text.file);
  const ModelConfig config{.preset = text.preset, .settings = {{"batch", 3}, {"dropout", 0.1}}};
  const Scheme step = training_step(elaborate(document, text.file, config), {});
  adjoint::Run run(step, make_plan(step, {.threads = num_threads()}), {.poison = true});
  initialize(run, 5);
  run.set_number(input_named(step, "rate"), 3e-3);
  const auto vocab =
      static_cast<int64_t>(resolve_settings(document, text.file, config).at("vocab"));
  double first = 0, last = 0;
  for (int i = 0; i < 30; ++i) {
    write_batch(run, 0, vocab);
    run.step();
    last = run.number(step.outputs[0]);
    if (i == 0) first = last;
  }
  EXPECT_GT(first, 0.9 * std::log(static_cast<double>(vocab)));
  EXPECT_LT(last, 0.85 * first);
}

INSTANTIATE_TEST_SUITE_P(All, Design, testing::ValuesIn(smallest_presets()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace adjoint
