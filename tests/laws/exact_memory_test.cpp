// What a plan says of memory is what a run then touches, to the byte and in every tier, for models
// and stacks drawn at random. ADJOINT_DRAWS=500 draws more than the few that always run.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/philox.h"
#include "base/text.h"
#include "device/parallel.h"
#include "laws/composition.h"
#include "models/small_models.h"
#include "models/test_models.h"
#include "run/profile.h"

namespace adjoint {
namespace {

int wanted_draws() {
  const char* said = std::getenv("ADJOINT_DRAWS");
  return said ? std::atoi(said) : 24;
}

// One model, one stack, and how it is trained.
struct Draw {
  std::string model, stack, text;
  Scheme step;
};

class Drawer {
 public:
  explicit Drawer(int number)
      : stream_{random_key(4, "exact memory"), static_cast<uint64_t>(number)} {}

  // May be refused.
  Draw draw() {
    const std::vector<std::string> items = matrix_items();
    std::vector<std::string> stack;
    for (int64_t n = below(5); n > 0; --n) {
      const std::string& item = items[below(items.size())];
      if (!std::count(stack.begin(), stack.end(), item)) stack.push_back(item);
    }
    const bool padded = std::count(stack.begin(), stack.end(), "pad_rows(least=16)") > 0;
    if (below(4) == 0 && !padded) stack.emplace_back("pad_rows(least=4)");
    Draw d{.model = {}, .stack = join(stack, " | "), .text = {}, .step = {}};
    StepOptions options;
    options.optimizer = std::vector<std::string>{"adamw", "momentum", "sgd"}[below(3)];
    options.clip = static_cast<double>(below(2));
    const Scheme forward = model(d.model);
    d.text = d.model + ", " + options.optimizer + (options.clip > 0 ? ", clip" : "") + ", '" +
             d.stack + "'";
    d.step = build_step(forward, parse_stack(d.stack), options).scheme;
    return d;
  }

 private:
  int64_t below(int64_t n) { return stream_.bits(next_++) % n; }

  Scheme model(std::string& said) {
    constexpr int64_t kModels = std::size(kTestModels);
    const int64_t which = below(kModels + 2);
    said = which < kModels ? kTestModels[which] : which == kModels ? "char" : "llama-tiny";
    std::map<std::string, double> settings = {
        {"batch", 1 + below(6)}, {"seq", 1 + below(16)}, {"dropout", below(2) ? 0.1 : 0}};
    settings[said == "odd" ? "fathoms" : "layers"] = 2 + below(4);
    if (which >= kModels) settings["vocab"] = 7 + below(60);
    const Scheme scheme =
        which < kModels ? test_model(said, settings) : elaborate_preset(said, settings);
    for (const auto& [name, value] : settings) said += " " + name + "=" + shortest(value);
    return scheme;
  }

  RandomStream stream_;
  uint64_t next_ = 0;
};

TEST(ExactMemory, IsTouchedToTheByteByRandomModelsAndStacks) {
  int legal = 0, stacked = 0, hosted = 0, refused = 0;
  for (int number = 0; legal < wanted_draws(); ++number) {
    ASSERT_LT(number, 20 * wanted_draws() + 100) << "most draws are refused";
    Draw d;
    try {
      d = Drawer(number).draw();
    } catch (const Error&) {
      ++refused;
      continue;
    }
    SCOPED_TRACE("draw " + std::to_string(number) + ": " + d.text);
    const Plan plan = make_plan(d.step, {.threads = num_threads()});
    Measured measured;
    ASSERT_NO_THROW(measured = measure_step(d.step, plan, {.steps = 1}));
    EXPECT_EQ(measured.touched.count, plan.arena.count);
    EXPECT_EQ(measured.host_touched.count, plan.host.size.count);
    ++legal;
    stacked += !d.stack.empty();
    hosted += plan.host.size.count > 0;
  }
  EXPECT_GT(stacked, legal / 2);
  EXPECT_GT(hosted, 0) << "some draws use the host's tier";
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace adjoint
