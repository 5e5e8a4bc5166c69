// The problem of plan/chain.h as an integer linear program: one binary per block, option and choice
// for its state, and one number per block for the bytes that its segment's recomputation holds when
// its backward begins.
#pragma once
#include <algorithm>
#include <array>

#include "plan/chain.h"
#include "plan/milp.h"

namespace adjoint {

// An upper bound on what a segment holds before block b. The tighter it is, the faster the solver.
inline int64_t most_held(const ChainProblem& p, int b, int64_t budget) {
  int64_t most = 0, work = budget;
  for (const BlockOption& o : p.options) {
    most = std::max(most, o.held + p.state);
    work = std::min(work, o.backward[b]);
  }
  return std::clamp<int64_t>(b * most, 0, std::max<int64_t>(budget - work, 0));
}

// Minimizes the sum of `cost(b, o, s)`. For an exact answer, costs and bytes must be whole numbers.
template <class Cost>
std::optional<ChainChoice> milp_choice(const ChainProblem& p, int64_t budget, const Cost& cost) {
  constexpr StateChoice kFates[] = {StateChoice::kKept, StateChoice::kDropped, StateChoice::kAway};
  const int last = p.blocks - 1;
  const auto options = static_cast<int>(p.options.size());
  // Bytes are scaled so that the budget is 1000, because the solver works with doubles.
  const double unit = 1e3 / static_cast<double>(std::max<int64_t>(budget, 1));
  const auto scaled = [&](int64_t bytes) { return static_cast<double>(bytes) * unit; };
  if (p.outside_none > budget) return std::nullopt;
  Milp milp;
  std::vector<std::vector<std::array<int, 3>>> takes(p.blocks);
  std::vector<int> held(p.blocks);  // by earlier blocks of the same segment
  for (int b = 0; b < p.blocks; ++b) {
    held[b] = milp.add_number(scaled(most_held(p, b, budget)));
    Milp::Sum one;
    takes[b].resize(options);
    for (int o = 0; o < options; ++o) {
      for (int s = 0; s < 3; ++s) {
        takes[b][o][s] = -1;
        if (s > 0 && b == last) continue;
        if (kFates[s] == StateChoice::kAway && p.state_cost < 0) continue;
        takes[b][o][s] = milp.add_binary(cost(b, o, kFates[s]));
        one.push_back({1, takes[b][o][s]});
      }
    }
    milp.equal(one, 1);
  }
  const auto each = [&](int b, const auto& visit) {  // (binary, option, fate)
    for (int o = 0; o < options; ++o) {
      for (int s = 0; s < 3; ++s) {
        if (takes[b][o][s] >= 0) visit(takes[b][o][s], p.options[o], kFates[s]);
      }
    }
  };
  Milp::Sum kept;  // by the blocks so far
  for (int b = 0; b < p.blocks; ++b) {
    Milp::Sum forward = kept, backward = kept;
    backward.push_back({1, held[b]});
    each(b, [&](int x, const BlockOption& o, StateChoice) {
      forward.push_back({scaled(o.forward[b]), x});
      backward.push_back({scaled(o.backward[b]), x});
    });
    milp.at_most(forward, scaled(budget));
    milp.at_most(backward, scaled(budget));
    each(b, [&](int x, const BlockOption& o, StateChoice s) {
      const bool state = s == StateChoice::kKept && b != last;
      kept.push_back({scaled(o.kept + (state ? p.state : 0)), x});
    });
    if (b == last) continue;
    // held[b + 1] >= held[b] + the bytes recomputed for b, if b's state is dropped. If it is not,
    // the row is satisfied anyway, because held[b] is at most most_held.
    Milp::Sum grows = {{1, held[b + 1]}, {-1, held[b]}};
    each(b, [&](int x, const BlockOption& o, StateChoice s) {
      const bool dropped = s == StateChoice::kDropped;
      grows.push_back({dropped ? -scaled(o.held + p.state) : scaled(most_held(p, b, budget)), x});
    });
    milp.at_least(grows, 0);
  }
  milp.at_most(kept, scaled(budget - p.outside_all));
  const auto answer = milp.minimize();
  if (!answer) return std::nullopt;
  ChainChoice choice{.option = std::vector<int>(p.blocks),
                     .state = std::vector<StateChoice>(p.blocks)};
  for (int b = 0; b < p.blocks; ++b) {
    for (int o = 0; o < options; ++o) {
      for (int s = 0; s < 3; ++s) {
        if (takes[b][o][s] < 0 || !answer->is(takes[b][o][s])) continue;
        choice.option[b] = o, choice.state[b] = kFates[s];
        choice.cost += cost(b, o, kFates[s]);
      }
    }
  }
  choice.peak = peak_of(p, choice);
  return choice;
}

// A relaxation, without the symmetry of equal blocks that makes the program above slow for many
// options. The first and the last block are as they are, the blocks between are only counted per
// option. Bytes are bounded only while these two run and between forward and backward, and without
// what segments hold. Its optimum is a lower bound, so a choice that reaches it is optimal. Nothing
// if it has no solution; then there is no choice either.
template <class Cost>
std::optional<double> milp_bound(const ChainProblem& p, int64_t budget, const Cost& cost) {
  const double unit = 1e3 / static_cast<double>(std::max<int64_t>(budget, 1));
  const auto scaled = [&](int64_t bytes) { return static_cast<double>(bytes) * unit; };
  const int last = p.blocks - 1;
  Milp milp;
  Milp::Sum begin, middle, end;             // one first, one last, the rest between
  Milp::Sum forward, backward, all;         // bytes: as the last block works, and after it
  Milp::Sum first_forward, first_backward;  // and as the first does
  const auto keeps = [&](int variable, int64_t bytes) {
    for (Milp::Sum* sum : {&forward, &backward, &all}) sum->push_back({scaled(bytes), variable});
  };
  for (int o = 0; o < static_cast<int>(p.options.size()); ++o) {
    const BlockOption& option = p.options[o];
    for (const auto s : {StateChoice::kKept, StateChoice::kDropped, StateChoice::kAway}) {
      if (s == StateChoice::kAway && p.state_cost < 0) continue;
      const int64_t kept = option.kept + (s == StateChoice::kKept ? p.state : 0);
      const int one = milp.add_binary(cost(o, s));
      begin.push_back({1, one});
      first_forward.push_back({scaled(option.forward[0]), one});
      first_backward.push_back({scaled(option.backward[0]), one});
      keeps(one, kept);
      const int some = milp.add_integer(p.blocks - 2, cost(o, s));
      middle.push_back({1, some});
      keeps(some, kept);
    }
    const int one = milp.add_binary(cost(o, StateChoice::kKept));
    end.push_back({1, one});
    forward.push_back({scaled(option.forward[last]), one});
    backward.push_back({scaled(option.backward[last]), one});
    all.push_back({scaled(option.kept), one});
  }
  milp.equal(begin, 1);
  milp.equal(middle, p.blocks - 2);
  milp.equal(end, 1);
  for (const Milp::Sum& sum : {first_forward, first_backward, forward, backward}) {
    milp.at_most(sum, scaled(budget));
  }
  milp.at_most(all, scaled(budget - p.outside_all));
  const auto answer = milp.minimize();
  if (!answer) return std::nullopt;
  return answer->cost;
}

inline double seconds_of(const ChainProblem& p, int option, StateChoice state) {
  const BlockOption& o = p.options[option];
  if (state == StateChoice::kDropped) return o.through;
  return o.cost + (state == StateChoice::kAway ? p.state_cost : 0);
}

}  // namespace adjoint
