#include "plan/chain.h"

#include <algorithm>

#include "base/error.h"

namespace adjoint {

namespace {

// A partial solution: choices for the first blocks. One dominates another if none of its numbers is
// larger, because later blocks only add to each number.
struct Label {
  int64_t kept = 0;  // by the blocks so far, and their states
  int64_t held = 0;  // by the open segment's recomputation
  double cost = 0;
  int before = -1;  // label of the previous block
  int option = -1;
  StateChoice state = StateChoice::kKept;
};

class Solver {
 public:
  Solver(const ChainProblem& problem, int64_t budget) : problem_(problem), budget_(budget) {}

  std::optional<ChainChoice> run() {
    if (problem_.outside_none > budget_) return std::nullopt;
    stages_.push_back({Label{}});
    for (int b = 0; b < problem_.blocks; ++b) {
      stages_.push_back(undominated(extended(b)));
      if (stages_.back().empty()) return std::nullopt;
    }
    const Label* best = nullptr;
    for (const Label& l : stages_.back()) {
      if (l.kept + problem_.outside_all > budget_) continue;
      if (!best || l.cost < best->cost) best = &l;
    }
    if (!best) return std::nullopt;
    return traced(*best);
  }

 private:
  std::vector<Label> extended(int b) const {
    std::vector<Label> next;
    const std::vector<Label>& labels = stages_.back();
    const bool last = b + 1 == problem_.blocks;
    for (size_t i = 0; i < labels.size(); ++i) {
      const Label& l = labels[i];
      for (size_t o = 0; o < problem_.options.size(); ++o) {
        const BlockOption& option = problem_.options[o];
        if (l.kept + option.forward[b] > budget_) continue;
        if (l.kept + l.held + option.backward[b] > budget_) continue;
        const auto add = [&](StateChoice state, int64_t kept, int64_t held, double cost) {
          next.push_back({.kept = l.kept + option.kept + kept,
                          .held = held,
                          .cost = l.cost + cost,
                          .before = static_cast<int>(i),
                          .option = static_cast<int>(o),
                          .state = state});
        };
        add(StateChoice::kKept, last ? 0 : problem_.state, 0, option.cost);
        if (last) continue;  // the state behind the last block is kept for the loss
        add(StateChoice::kDropped, 0, l.held + option.held + problem_.state, option.through);
        if (problem_.state_cost >= 0) {
          add(StateChoice::kAway, 0, 0, option.cost + problem_.state_cost);
        }
      }
    }
    return next;
  }

  // Labels are sorted by bytes kept. A label survives if no earlier one holds as little for as
  // little cost. Survivors' (held, cost) form a staircase: as held rises, cost falls.
  static std::vector<Label> undominated(std::vector<Label> all) {
    std::sort(all.begin(), all.end(), [](const Label& a, const Label& b) {
      if (a.kept != b.kept) return a.kept < b.kept;
      return a.held != b.held ? a.held < b.held : a.cost < b.cost;
    });
    std::vector<Label> kept;
    std::vector<std::pair<int64_t, double>> stairs;  // (held, cost), held rising, cost falling
    for (const Label& l : all) {
      auto at = std::upper_bound(stairs.begin(), stairs.end(), l.held,
                                 [](int64_t held, const auto& s) { return held < s.first; });
      if (at != stairs.begin() && std::prev(at)->second <= l.cost) continue;
      kept.push_back(l);
      // Stairs that hold at least as much and cost at least as much are no longer needed.
      auto first = std::lower_bound(stairs.begin(), stairs.end(), l.held,
                                    [](const auto& s, int64_t held) { return s.first < held; });
      auto end = first;
      while (end != stairs.end() && end->second >= l.cost) ++end;
      first = stairs.erase(first, end);
      stairs.insert(first, {l.held, l.cost});
    }
    return kept;
  }

  ChainChoice traced(const Label& end) const {
    ChainChoice choice{.option = std::vector<int>(problem_.blocks),
                       .state = std::vector<StateChoice>(problem_.blocks),
                       .cost = end.cost};
    const Label* label = &end;
    for (int b = problem_.blocks; b-- > 0;) {
      choice.option[b] = label->option;
      choice.state[b] = label->state;
      label = &stages_[b][label->before];
    }
    choice.peak = peak_of(problem_, choice);
    return choice;
  }

  const ChainProblem& problem_;
  int64_t budget_;
  std::vector<std::vector<Label>> stages_;  // undominated, after each block
};

}  // namespace

int64_t peak_of(const ChainProblem& problem, const ChainChoice& choice) {
  int64_t peak = problem.outside_none, kept = 0, held = 0;
  for (int b = 0; b < problem.blocks; ++b) {
    const BlockOption& option = problem.options[choice.option[b]];
    peak = std::max({peak, kept + option.forward[b], kept + held + option.backward[b]});
    kept += option.kept;
    if (choice.state[b] == StateChoice::kDropped) {
      held += option.held + problem.state;
    } else {
      held = 0;
      const bool last = b + 1 == problem.blocks;
      if (choice.state[b] == StateChoice::kKept && !last) kept += problem.state;
    }
  }
  return std::max(peak, kept + problem.outside_all);
}

std::optional<ChainChoice> solve(const ChainProblem& problem, int64_t budget) {
  CHECK(problem.blocks > 0 && !problem.options.empty(), "a chain has blocks, and they options");
  return Solver(problem, budget).run();
}

int64_t smallest_budget(const ChainProblem& problem) {
  ChainProblem free = problem;  // without costs few labels survive
  for (BlockOption& option : free.options) option.cost = option.through = 0;
  if (free.state_cost >= 0) free.state_cost = 0;
  int64_t low = 0, high = 1;
  while (!solve(free, high)) low = high, high *= 2;
  while (low + 1 < high) {
    const int64_t middle = low + (high - low) / 2;
    (solve(free, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace adjoint
