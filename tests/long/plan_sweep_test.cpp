// Every preset is planned under every functor of the matrix and every two of them, with as many
// ranks as these say: what is legal has a plan of its step and of its evaluation that the verifier
// accepts, and what is not is refused in a sentence that begins with who refuses. Blocks are at
// most four, all other sizes are the preset's own.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iostream>

#include "base/file.h"
#include "base/temp_folder.h"
#include "functors/evaluation_beside.h"
#include "functors/stage_step.h"
#include "laws/composition.h"
#include "laws/shrink.h"
#include "models/test_models.h"
#include "plan/plan.h"

namespace adjoint {
namespace {

constexpr int64_t kBlocks = 4;
// One sample for each of four parts on two ranks, and two parts of two stages beside them.
constexpr int64_t kBatch = 16, kContext = 16;

std::vector<std::string> stacks() {
  const std::vector<std::string> items = matrix_items();
  std::vector<std::string> all = items;
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = 0; j < i; ++j) all.push_back(stack_of_items({items[j], items[i]}));
  }
  return all;
}

// The preset with few blocks.
BoundModel model_of(const std::string& preset) {
  const BoundModel whole(find_model(preset), {.batch = kBatch, .context = kContext});
  nlohmann::json fewer = nlohmann::json::object();
  for (const auto& [axis, use] : axis_uses(whole, {})) {
    const auto size = static_cast<int64_t>(whole.settings().at(axis));
    if (use == AxisUse::kRepeats) fewer[axis] = std::min(size, kBlocks);
  }
  return {whole.text(), {.batch = kBatch, .context = kContext, .settings = fewer}};
}

// A plan is verified while it is made.
void plan_under(const Scheme& forward, const std::string& text) {
  const Stack stack = parse_stack(text);
  const StepOptions options{.stack = text, .on_mesh = true};
  const Scheme whole = build_step(forward, stack, options).scheme;
  const Scheme evaluation = evaluation_beside(whole, forward, stack, options);
  const std::vector<Scheme> steps = steps_of_stages(whole);
  const std::vector<Scheme> evaluations = steps_of_stages(evaluation);
  for (size_t i = 0; i < steps.size(); ++i) {
    const Plan plan = make_plan(steps[i], {});
    make_plan(evaluations[i], beside(steps[i], plan, 1));
  }
}

// One sentence that begins with who refuses: a functor of the stack, a line of its text, or, where
// two cannot stand beside each other whatever the model is, the stack.
bool is_told_well(const std::string& what, const std::string& stack) {
  const size_t colon = what.find(": ");
  if (colon == what.npos || what.size() < colon + 20 || what.find('\n') != what.npos) return false;
  const std::string who = what.substr(0, colon);
  return who == "stack" || who.find(".functor:") != who.npos ||
         (" | " + stack).find(" | " + who) != std::string::npos;
}

// What a child has come to: kept where the parent finds it when the child is no more.
struct Progress {
  size_t next = 0;  // stack
  int planned = 0, refused = 0;
};

class PlanSweep : public testing::TestWithParam<std::string> {
 protected:
  // From the stack at `progress` on; says what is told badly.
  static void run_child(const std::string& preset, const std::vector<std::string>& stacks,
                        const std::filesystem::path& told, Progress& progress) {
    std::ofstream out(told, std::ios::app);
    const Scheme forward = model_of(preset).forward();
    for (; progress.next < stacks.size(); ++progress.next) {
      const std::string& stack = stacks[progress.next];
      try {
        plan_under(forward, stack);
        ++progress.planned;
      } catch (const Error& e) {
        ++progress.refused;
        if (!is_told_well(e.what(), stack)) out << stack << "\n  " << e.what() << std::endl;
      } catch (const std::exception& e) {
        out << stack << "\n  is no refusal: " << e.what() << std::endl;
      }
    }
  }
};

TEST_P(PlanSweep, EveryPairIsPlannedOrRefused) {
  const std::vector<std::string> all = stacks();
  const TempFolder folder;
  const std::filesystem::path told = folder / "told", errors = folder / "errors";
  void* shared =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  Progress& progress = *new (shared) Progress;
  while (progress.next < all.size()) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (!std::freopen(errors.c_str(), "w", stderr)) ::_exit(2);
      run_child(GetParam(), all, told, progress);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    ADD_FAILURE() << all[progress.next] << "\n  "
                  << (WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : "ended") << ": "
                  << read_file(errors);
    ++progress.next;
  }
  if (std::filesystem::exists(told)) {
    const std::string badly = read_file(told);
    EXPECT_TRUE(badly.empty()) << "not told in a sentence with a name:\n" << badly;
  }
  EXPECT_GT(progress.planned, progress.refused) << "most of the matrix is legal";
  RecordProperty("planned", progress.planned);
  RecordProperty("refused", progress.refused);
  std::cout << GetParam() << ": " << progress.planned << " planned, " << progress.refused
            << " refused\n";
  ::munmap(shared, sizeof(Progress));
}

INSTANTIATE_TEST_SUITE_P(Presets, PlanSweep, testing::ValuesIn(known_presets()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace adjoint
