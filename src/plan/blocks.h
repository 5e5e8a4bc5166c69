// What the blocks of a chain could keep, and what that costs: the numbers that plan/chain.h chooses
// by. An option is a set of a block's tensors that are kept; its bytes and seconds are read off a
// real plan in which every block takes that option.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/structure.h"
#include "plan/chain.h"
#include "plan/looks.h"

namespace adjoint {

class Blocks {
 public:
  // `said` is a step whose attributes are set and not yet realized; options are ordered by `costs`.
  Blocks(Scheme said, const Costs& costs);

  // Whether residences can be chosen: not without a chain, nor where the stack sets them.
  bool can_choose() const { return can_choose_; }
  int num_options() const { return static_cast<int>(options_.size()); }

  // For tests that judge the choice: what any set of a block's tensors would keep and cost, by the
  // same estimate that options are chosen by. Tensors of one call are one group.
  struct Worth {
    double kept = 0, seconds = 0;
  };
  int num_groups() const { return static_cast<int>(groups_[0].size()); }
  Worth worth_of(const std::vector<bool>& kept) const;
  Worth worth_of(int option) const { return {options_[option].kept, options_[option].cost}; }

  // A choice as arguments of the functor `reside`.
  std::string print(const ChainChoice& choice) const;

  // Every block takes the same option, and every state is kept.
  ChainChoice uniform(int option) const;
  // Whether so many blocks repeat that each plan of a step counts.
  bool is_long() const;
  // Choices whose steps `measure` reads: each option in all blocks of a short chain. In a long one
  // blocks take the options in turn, so that a step or two say all.
  std::vector<ChainChoice> samples() const;

  // The most bytes of a step's plan while no block's tensors are held; residences do not change
  // that.
  Bytes around(const TimedStep& step) const;

  // Reads the numbers of every option off the steps that `build` gives for the prints of samples,
  // beside `plain`, in which everything is kept. Copies between tiers may be hidden behind
  // arithmetic, so only the share `copies` of their seconds counts.
  ChainProblem measure(const std::function<const TimedStep&(const std::string&)>& build,
                       const TimedStep& plain, double copies) const;

 private:
  // Results of one call that the backward reads: kept, offloaded or recomputed together.
  struct Group {
    int maker = -1;
    std::vector<Value> objects = {};
    double bytes = 0;
  };
  enum class Stay : uint8_t { kKept, kAgain, kAway };
  struct Option {
    std::vector<Stay> stays;
    double kept = 0, held = 0, away = 0;  // bytes
    double cost = 0, through = 0;         // seconds of recomputation
  };

  void find_groups();
  void find_options();
  void choose_options(size_t most);
  Option option_of(const std::vector<Stay>& stays) const;
  double closure(const std::vector<Stay>& stays, bool state) const;
  int num_sampled() const;
  std::vector<std::string> patterns(const std::vector<std::vector<Value>>& per_block) const;

  Scheme said_;
  Scheme priced_;  // the same, with objects in the dtypes that were set
  const Costs& costs_;
  Chain chain_;
  bool can_choose_ = false;
  std::vector<int> made_by_;
  std::vector<bool> from_data_;  // per object; what is made of parameters alone is not chosen
  std::vector<std::vector<Group>> groups_;  // per block, in the same order
  std::vector<Option> options_;             // of every block
};

}  // namespace adjoint
