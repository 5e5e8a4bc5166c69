// Runs two steps of one model, with dropout on, and compares all their numbers bit for bit.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "device/parallel.h"
#include "functors/phases.h"
#include "ops/builder.h"
#include "run/parameters.h"
#include "run/run.h"
#include "train/bound_model.h"
#include "train/trainer.h"

namespace adjoint {

class SteppedRun {
 public:
  explicit SteppedRun(const Scheme& step)
      : run_(step, make_plan(step, {.threads = num_threads()}), {.poison = true}) {
    initialize(run_, 11);
  }

  void step(int number, int64_t vocab) {
    const Scheme& s = run_.scheme();
    std::mt19937 random(100 + number);
    for (const char* name : {"tokens", "targets"}) {
      const Value v = input_named(s, name);
      auto* ids = static_cast<int32_t*>(run_.data(v));
      for (int64_t i = 0; i < s[v].type.num_elements(); ++i) {
        ids[i] = static_cast<int32_t>(random() % vocab);
        if (name[1] == 'a' && random() % 7 == 0) ids[i] = -1;  // a masked target
      }
    }
    run_.set_number(input_named(s, "rate"), 1e-3 * (1 + number));
    if (const Value counter = input_named(s, kRandomCounter); counter >= 0) {
      auto* c = static_cast<int64_t*>(run_.data(counter));
      c[0] = 11, c[1] = number, c[2] = 0;
    }
    run_.step();
  }

  // Losses and other results, parameters and moments, by source.
  std::map<std::string, std::vector<double>> numbers() const {
    std::map<std::string, std::vector<double>> all;
    const Scheme& s = run_.scheme();
    for (const Value v : s.outputs) all["return " + to_string(s[v].source)] = run_.values(v);
    for (const Value v : s.inputs) {
      if (s[v].init) all[to_string(s[v].source)] = run_.values(v);
    }
    return all;
  }

 private:
  Run run_;
};

// A description of the first difference; "" if there is none.
inline std::string first_difference(const Scheme& plain, const Scheme& other, int64_t vocab,
                                    int steps = 3) {
  SteppedRun a(plain), b(other);
  for (int step = 0; step < steps; ++step) {
    a.step(step, vocab);
    b.step(step, vocab);
    const auto want = a.numbers(), got = b.numbers();
    if (want.size() != got.size()) return "one has more numbers than the other";
    for (const auto& [name, numbers] : want) {
      const auto found = got.find(name);
      if (found == got.end() || numbers.size() != found->second.size())
        return name + " is not in both";
      const auto is_nan = [](double number) { return std::isnan(number); };
      if (std::any_of(numbers.begin(), numbers.end(), is_nan)) return name + " is no number";
      const size_t bytes = numbers.size() * sizeof(double);
      if (std::memcmp(numbers.data(), found->second.data(), bytes) != 0) {
        return name + " differs in step " + std::to_string(step);
      }
    }
  }
  return "";
}

inline void expect_same_bits(const Scheme& plain, const Scheme& other, int64_t vocab,
                             int steps = 3) {
  ASSERT_EQ(first_difference(plain, other, vocab, steps), "");
}

// The step as it is before any realization or fusion.
inline Scheme bare_step(const Scheme& forward, const StepOptions& options = {}) {
  return apply_optimizer(apply_adjoint(forward), options);
}

struct SmallModel {
  std::string name;
  Scheme forward;
  int64_t vocab;
};

// A GPT-2, a Llama, and nested boxes, which no preset has; all with dropout.
inline std::vector<SmallModel> small_models() {
  const auto bound = [](const char* preset, nlohmann::json settings) {
    ModelSizes sizes{.batch = 3, .context = 12, .settings = std::move(settings)};
    return BoundModel(find_model(preset), sizes).forward();
  };
  constexpr std::string_view nested = R"(axes hidden=8 context=12 vocab=29 outer=2 inner=2
leaf y[batch, seq, hidden]:
  h = silu(linear(rms_norm(y), 2*hidden)) * linear(rms_norm(y), 2*hidden)
  y = y + dropout(linear(dropout(h, 0.2), hidden), 0.1)
stem z[batch, seq, hidden]:
  z = leaf^inner(z)
model tokens[batch, seq], targets[batch, seq]:
  x = stem^outer(embed(tokens, vocab) + embed(position, context))
  loss = cross_entropy(linear(rms_norm(x), vocab), targets)
)";
  return {
      {"gpt2",
       bound("char",
             {{"layers", 4}, {"hidden", 24}, {"heads", 3}, {"vocab", 37}, {"dropout", 0.1}}),
       37},
      {"llama", bound("llama-tiny", {{"layers", 3}, {"vocab", 41}, {"dropout", 0.1}}), 41},
      {"nested",
       elaborate(parse_document(nested, "nested"), "nested", {.settings = {{"batch", 3}}}), 29}};
}

}  // namespace adjoint
