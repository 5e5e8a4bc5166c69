// The flags with which a command chooses a stack that fits a budget, and the clock it goes by.
#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/step_flags.h"
#include "train/fit_budget.h"

namespace adjoint {

// A stack that fits, and why it is that one, for people.
struct Chosen {
  FitPoint point;
  std::string why;
  size_t plans = 0;      // that were made
  bool cut_off = false;  // the search was, after the seconds that were allowed
};

struct FitFlags {
  FitWish wish;
  std::string seconds = {};  // as --fit-seconds says it; "": as many as by default

  void add_to(CLI::App& command);  // --fit --fit-seconds --allow-approximating --profile
  bool wanted() const { return !wish.budget.empty(); }
  // Flags that mean nothing without a choice are refused, not ignored.
  void check(bool chooses) const;
  // With a progress bar. Refuses what cannot be met.
  Chosen choose(const BoundModel& model, const StepOptions& step) const;

 private:
  FitWish limited() const;
};

// --pareto: the curve as a table, and as a picture.
struct ParetoFlags {
  bool asked = false;
  std::string file = {};  // .svg; a file alone asks for it, too
  int64_t points = 24;

  void add_to(CLI::App& command);
  bool wanted() const { return asked || !file.empty(); }
};
int run_pareto(const ParetoFlags& pareto, const FitFlags& fit, const StepFlags& flags, bool json);

}  // namespace adjoint
