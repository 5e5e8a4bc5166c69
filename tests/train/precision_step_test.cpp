// Whole steps in 16 bits and on codes, against the float64 reference that rounds where they round.
// Rounding is not continuous: a value near the middle of two bf16 numbers may fall to either side
// in float32 and in float64. So the yardstick is the reference itself, how far its gradients move
// when its parameters move by 2^-22 of their size, about the error of a float32 product.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "device/parallel.h"
#include "functors/pipeline.h"
#include "functors/reference.h"
#include "kernels/harness.h"
#include "kernels/quantize.h"
#include "ops/builder.h"
#include "run/parameters.h"
#include "train/bound_model.h"
#include "train/trainer.h"

namespace adjoint {
namespace {

constexpr int64_t kSeed = 11;

struct Model {
  std::string name;
  nlohmann::json settings;
  int64_t context, vocab;

  Scheme forward() const {
    return BoundModel(find_model(name), {.batch = 3, .context = context, .settings = settings})
        .forward();
  }
};

const Model kGpt2 = {
    "char", {{"layers", 2}, {"hidden", 64}, {"heads", 4}, {"vocab", 37}, {"dropout", 0.1}}, 20, 37};
const Model kLlama = {"llama-tiny", {{"layers", 2}, {"vocab", 41}, {"dropout", 0.1}}, 20, 41};

// With every gradient of a parameter among the outputs.
Scheme traced(Scheme step) {
  for (const Value in : std::vector<Value>(step.inputs)) {
    if (step[in].role != Role::kParameter || step[in].frozen) continue;
    const auto gradient = step.find({step[in].source.path, "grad"});
    EXPECT_TRUE(gradient) << to_string(step[in].source);
    step.outputs.push_back(*gradient);
  }
  return step;
}

class StepRun {
 public:
  StepRun(const Scheme& step, bool reference, int64_t vocab)
      : run(step, make_plan(step, {.threads = num_threads()}),
            {.reference = reference, .poison = true}),
        vocab_(vocab) {
    const Scheme& s = run.scheme();
    run.set_number(input_named(s, "rate"), 1e-3);
    if (const Value counter = input_named(s, kRandomCounter); counter >= 0) {
      run.set_values(counter, {kSeed, 0, 0});
    }
  }

  void write_batch(unsigned batch) {
    const Scheme& s = run.scheme();
    std::mt19937 random(batch);
    for (const char* name : {"tokens", "targets"}) {
      const Value v = input_named(s, name);
      Numbers ids(s[v].type.num_elements());
      for (double& id : ids) {
        id = static_cast<double>(random() % vocab_);
        if (name[1] == 'a' && random() % 7 == 0) id = -1;  // a masked target
      }
      run.set_values(v, ids);
    }
  }

  void step(unsigned batch = 100) {
    write_batch(batch);
    run.step();
  }

  // The same beginning as another run's, parameters moved by this much of their size.
  void begin_like(const StepRun& other, double jitter) {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> uniform(-jitter, jitter);
    const Scheme &mine = run.scheme(), &theirs = other.run.scheme();
    ASSERT_EQ(mine.inputs.size(), theirs.inputs.size());
    for (size_t i = 0; i < mine.inputs.size(); ++i) {
      ASSERT_EQ(mine[mine.inputs[i]].source, theirs[theirs.inputs[i]].source);
      if (!mine[mine.inputs[i]].init) continue;
      Numbers x = other.run.values(theirs.inputs[i]);
      const bool moves = mine[mine.inputs[i]].role == Role::kParameter &&
                         is_float(mine[mine.inputs[i]].type.dtype);
      for (double& value : x) value *= moves ? 1 + uniform(random) : 1;
      run.set_values(mine.inputs[i], x);
    }
  }

  std::vector<Numbers> gradients() const {
    std::vector<Numbers> all;
    const std::vector<Value>& outputs = run.scheme().outputs;
    for (size_t k = 3; k < outputs.size(); ++k) all.push_back(run.values(outputs[k]));
    return all;
  }

  Run run;

 private:
  int64_t vocab_;
};

struct Worst {
  double error = 0, moved = 0, ratio = 0;
};

// Every gradient of the step against the reference, beside how far the reference itself moves.
Worst compare(const Scheme& step, int64_t vocab, double scale) {
  StepRun ours(step, false, vocab);
  const Scheme judge = to_reference(step);
  StepRun reference(judge, true, vocab), jittered(judge, true, vocab);
  initialize(ours.run, kSeed);
  if (const auto v = step.find({"loss_scale"})) ours.run.set_number(*v, scale);
  reference.begin_like(ours, 0);
  jittered.begin_like(ours, 0x1p-22);
  for (StepRun* run : {&ours, &reference, &jittered}) run->step();
  const auto got = ours.gradients(), want = reference.gradients(), near = jittered.gradients();
  Worst worst;
  for (size_t k = 0; k < want.size(); ++k) {
    const double error = relative_error(got[k], want[k]), moved = relative_error(near[k], want[k]);
    worst.error = std::max(worst.error, error);
    worst.moved = std::max(worst.moved, moved);
    worst.ratio = std::max(worst.ratio, error / moved);
    EXPECT_LT(error, 4 * moved) << to_string(step[step.outputs[k + 3]].source);
  }
  return worst;
}

void expect_law(const Model& model, const Scheme& step, double scale = 1) {
  const Worst worst = compare(traced(step), model.vocab, scale);
  std::printf("%s: error %.2e, the reference moves %.2e, worst ratio %.2f\n", model.name.c_str(),
              worst.error, worst.moved, worst.ratio);
}
Scheme step_of(const Model& model, const char* stack) {
  return training_step(model.forward(), {.stack = stack});
}

// The whole step is chaotic at the size of one rounding, so every call is also judged alone, on the
// numbers that it was given: it rounds once, at its end. A rounding too many or too few moves a
// result by a thousandth (bf16), one that falls to the other side now and then by far less.
struct CallCheck {
  StepRun& ours;
  std::vector<Numbers> given = {};  // operands of the next call
  std::map<Dtype, double> worst = {};

  const Morphism& call(int at) const {
    return ours.run.scheme().morphisms[ours.run.plan().calls[at].morphism];
  }
  void take_operands(int at) {
    given.clear();
    for (const Value in : call(at).inputs) given.push_back(ours.run.values(in));
  }

  void check(int at) {
    const Scheme& s = ours.run.scheme();
    const Morphism& m = call(at);
    Scheme alone;
    Morphism copy = m;
    copy.after.clear();
    for (Value& in : copy.inputs) in = alone.add_input({s[in].type, s[in].source, Role::kInput});
    for (Value& out : copy.outputs) out = alone.add(s[out]);
    alone.morphisms = {copy};
    alone.outputs = copy.outputs;
    const auto want = run_scheme(alone, given, true);
    for (size_t k = 0; k < want.size(); ++k) {
      const Dtype dtype = s[m.outputs[k]].type.dtype;
      const double error = relative_error(ours.run.values(m.outputs[k]), want[k]);
      // A sum in float32 beside numbers that are rounded to 16 bits is one of the rounded ones, of
      // which one now and then falls to the other side.
      const bool beside_narrow = std::any_of(m.outputs.begin(), m.outputs.end(), [&](Value v) {
        return s[v].type.dtype == Dtype::kBF16 || s[v].type.dtype == Dtype::kF16;
      });
      const double bound = dtype == Dtype::kBF16  ? 3e-4
                           : dtype == Dtype::kF16 ? 8e-5
                           : beside_narrow        ? 1e-4
                                                  : 5e-6;
      worst[dtype] = std::max(worst[dtype], error);
      EXPECT_LT(error, bound) << m.op << " makes " << to_string(s[m.outputs[k]].source);
    }
  }
};

void expect_calls(const Model& model, const Scheme& step, double scale = 1) {
  StepRun ours(step, false, model.vocab);
  initialize(ours.run, kSeed);
  if (const auto v = step.find({"loss_scale"})) ours.run.set_number(*v, scale);
  CallCheck checks{ours};
  ours.write_batch(100);
  checks.take_operands(0);
  const int last = static_cast<int>(ours.run.plan().calls.size()) - 1;
  ours.run.after_call = [&](int at) {
    checks.check(at);
    if (at < last) checks.take_operands(at + 1);
  };
  ours.run.step();
  for (const auto& [dtype, error] : checks.worst) {
    std::printf("%s: worst call that makes %s: %.2e\n", model.name.c_str(),
                std::string(name(dtype)).c_str(), error);
  }
}

// A fused epilogue rounds twice, as its product and its function do apart.
TEST(PrecisionStep, EveryCallOfBf16Gpt2RoundsOnce) {
  expect_calls(kGpt2, step_of(kGpt2, "bf16 | -fuse_epilogue"));
}
TEST(PrecisionStep, EveryCallOfFp16LlamaRoundsOnce) {
  expect_calls(kLlama, step_of(kLlama, "fp16"), 256);
}
TEST(PrecisionStep, Fp16OfGpt2) { expect_law(kGpt2, step_of(kGpt2, "fp16"), 256); }
TEST(PrecisionStep, Fp16OfLlama) { expect_law(kLlama, step_of(kLlama, "fp16"), 256); }
TEST(PrecisionStep, Bf16OfGpt2) { expect_law(kGpt2, step_of(kGpt2, "bf16")); }
TEST(PrecisionStep, Bf16OfLlama) { expect_law(kLlama, step_of(kLlama, "bf16")); }

// Matrices and tables frozen, biases and gains trained.
Scheme with_frozen_matrices(Scheme forward) {
  for (const Value in : forward.inputs) {
    Object& object = forward[in];
    if (object.role == Role::kParameter && object.type.rank() > 1) object.frozen = true;
  }
  return forward;
}

TEST(QuantizedStep, IsTheStepOfTheDequantizedMatrices) {
  for (const char* stack : {"quantize(nf4)", "quantize(int8, per=channel)"}) {
    const Scheme forward = with_frozen_matrices(kGpt2.forward());
    const Scheme step = traced(training_step(forward, {.stack = stack}));
    // Nothing rounds, so plain float32 bounds hold.
    StepRun ours(step, false, kGpt2.vocab), judge(to_reference(step), true, kGpt2.vocab);
    initialize(ours.run, kSeed);
    judge.begin_like(ours, 0);
    ours.step();
    judge.step();
    const auto got = ours.gradients(), want = judge.gradients();
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_LT(relative_error(got[k], want[k]), 1e-5)
          << stack << " " << to_string(step[step.outputs[k + 3]].source);
    }
  }
}

TEST(QuantizedStep, TrainsWhatIsNotFrozen) {
  const Scheme forward = with_frozen_matrices(kGpt2.forward());
  const Scheme step = training_step(forward, {.stack = "quantize(nf4)"});
  StepRun ours(step, false, kGpt2.vocab);
  initialize(ours.run, kSeed);
  ours.run.set_number(input_named(step, "rate"), 3e-2);
  double first = 0, last = 0;
  for (int i = 0; i < 30; ++i) {
    ours.step();
    last = ours.run.number(step.outputs[0]);
    if (i == 0) first = last;
  }
  EXPECT_LT(last, 0.9 * first) << "one batch is learned, by biases and gains alone";
}

TEST(QuantizedStep, BeginsWithTheCodesOfThePlainBeginning) {
  const Scheme forward = with_frozen_matrices(kGpt2.forward());
  const Scheme plain_step = training_step(forward, {});
  const Scheme step = training_step(forward, {.stack = "quantize(nf4)"});
  StepRun plain(plain_step, false, kGpt2.vocab), ours(step, false, kGpt2.vocab);
  initialize(plain.run, kSeed);
  initialize(ours.run, kSeed);
  int encoded = 0;
  for (const Value in : plain_step.inputs) {
    const Object& object = plain_step[in];
    const auto codes = step.find({object.source.path, "codes"});
    if (object.role != Role::kParameter || !codes) continue;
    ++encoded;
    const Value scales = *step.find({object.source.path, "scales"});
    const Numbers matrix = plain.run.values(in);
    const std::vector<float> floats(matrix.begin(), matrix.end());
    std::vector<uint8_t> want(floats.size() / 2);
    std::vector<float> want_scales(floats.size() / 64);
    quantize(floats.data(), object.type, *code_format("nf4/64"), want.data(), want_scales.data());
    EXPECT_EQ(ours.run.values(*codes), Numbers(want.begin(), want.end()));
    EXPECT_EQ(ours.run.values(scales), Numbers(want_scales.begin(), want_scales.end()));
    // Loaded from plain numbers, it is the same again.
    ours.run.set_values(*codes, Numbers(want.size(), 0));
    write_parameter(ours.run, object.source, floats);
    EXPECT_EQ(ours.run.values(*codes), Numbers(want.begin(), want.end()));
  }
  EXPECT_EQ(encoded, 2 * 4 + 1) << "four matrices a block, and the table that is read out";
  const Value bias = input_named(step, "block[0].qkv.bias");
  write_parameter(ours.run, step[bias].source, std::vector<float>(3 * 64, 0.5f));
  EXPECT_EQ(ours.run.values(bias), Numbers(3 * 64, 0.5));
  EXPECT_THROW(write_parameter(ours.run, step[bias].source, std::vector<float>(7)), Error);
  EXPECT_THROW(write_parameter(ours.run, {"nobody"}, std::vector<float>(7)), Error);
}

// 4.5 bits an element instead of 32 in the plan's state, up to the rounding of offsets.
TEST(QuantizedStep, IsPlannedInItsBits) {
  const Scheme forward = with_frozen_matrices(kGpt2.forward());
  const Scheme plain = training_step(forward, {}),
               step = training_step(forward, {.stack = "quantize(nf4)"});
  int64_t elements = 0, tensors = 0;
  for (const Value in : step.inputs) {
    if (step[in].source.facet != "codes") continue;
    elements += 2 * step[in].type.num_elements();
    tensors += 2;
  }
  const auto state = [](const Scheme& s) {
    return static_cast<double>(make_plan(s, {.threads = 1}).state_end.count);
  };
  const double saved = state(plain) - state(step);
  EXPECT_NEAR(saved, static_cast<double>(elements) * (32 - 4.5) / 8,
              static_cast<double>(tensors) * 64);
}

}  // namespace
}  // namespace adjoint
