#include "plan/local_search.h"

#include <algorithm>

namespace adjoint {

namespace {

constexpr int kLooks = 240;   // plans made in all
constexpr size_t kWidth = 8;  // tensors that are tried at each peak
constexpr int kSideways = 4;  // steps in a row that gain nothing: two peaks may be equal

class LocalSearch {
 public:
  LocalSearch(const LocalProblem& problem, Bytes budget) : problem_(problem), budget_(budget) {}

  Names run() {
    const auto start = look({});
    if (!start) return {};
    here_ = best_ = *start;
    descend();
    here_ = best_;
    while (fits(here_) && (drop_one() || exchange_one())) {
    }
    return here_.again;
  }

 private:
  struct Place {
    Names again = {};
    LocalProblem::Judged judged = {};
  };

  bool fits(const Place& p) const { return p.judged.peak <= budget_; }

  std::optional<Place> look(const Names& again) {
    if (looks_ == 0) return std::nullopt;
    --looks_;
    const auto judged = problem_.look(again);
    if (!judged) return std::nullopt;
    return Place{again, *judged};
  }

  void descend() {
    for (int sideways = 0; !fits(here_) && sideways < kSideways;) {
      const auto next = best_step_down();
      if (!next) return;
      sideways = next->judged.peak < best_.judged.peak ? 0 : sideways + 1;
      here_ = *next;
      if (sideways == 0) best_ = here_;
    }
  }

  // Bytes that are freed beyond the budget count as nothing.
  std::optional<Place> best_step_down() {
    std::optional<Place> best;
    double most = -1;
    size_t tried = 0;
    for (const std::string& name : problem_.at_peak(here_.again)) {
      if (here_.again.count(name)) continue;
      pool_.insert(name);
      if (++tried > kWidth) continue;
      Names more = here_.again;
      more.insert(name);
      const auto next = look(more);
      if (!next) continue;
      const int64_t gain = here_.judged.peak.count - next->judged.peak.count;
      const int64_t wanted = here_.judged.peak.count - budget_.count;
      const double seconds = next->judged.seconds - here_.judged.seconds;
      const double worth = static_cast<double>(std::clamp<int64_t>(gain, 0, wanted)) /
                           std::max(seconds, 1e-9 * here_.judged.seconds);
      if (worth > most) most = worth, best = next;
    }
    return best;
  }

  bool take_if_faster(const Names& again) {
    const auto next = look(again);
    if (!next || !fits(*next) || next->judged.seconds >= here_.judged.seconds) return false;
    here_ = *next;
    return true;
  }

  bool drop_one() {
    const Names all = here_.again;
    for (const std::string& name : all) {
      Names less = all;
      less.erase(name);
      if (take_if_faster(less)) return true;
    }
    return false;
  }

  bool exchange_one() {
    const Names all = here_.again;
    for (const std::string& name : all) {
      for (const std::string& other : pool_) {
        if (all.count(other)) continue;
        Names instead = all;
        instead.erase(name);
        instead.insert(other);
        if (take_if_faster(instead)) return true;
      }
    }
    return false;
  }

  const LocalProblem& problem_;
  Bytes budget_;
  Place here_, best_;
  Names pool_;  // everything that was ever alive at a peak
  int looks_ = kLooks;
};

}  // namespace

Names search_locally(const LocalProblem& problem, Bytes budget) {
  return LocalSearch(problem, budget).run();
}

}  // namespace adjoint
