// What a chain's blocks could keep, and what that costs: the numbers that plan/chain.h chooses by.
// Options are sets of a block's tensors; what an option holds and takes is read off a real plan in
// which every block takes it.
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
  // `said` is a step with attributes said and none realized; `costs` order its options.
  Blocks(Scheme said, const Costs& costs);

  // Can its residences be chosen? Not without a chain, nor where the stack has said them.
  bool can_choose() const { return can_choose_; }
  int num_options() const { return static_cast<int>(options_.size()); }

  // What any set of a block's tensors would keep and cost, by the count that options are chosen by:
  // for those who judge the choice. Tensors of one call are one group.
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

  // Bytes at the worst moment of a step's plan while no block's tensors are held: no residence of
  // them changes that.
  Bytes around(const TimedStep& step) const;

  // Reads the numbers of every option off the step that `build` gives for its `print`. Seconds
  // between tiers count `copies` of themselves, for they may be hidden.
  ChainProblem measure(const std::function<const TimedStep&(const std::string&)>& build,
                       const TimedStep& plain, double copies) const;

 private:
  // Results of one call that the backward reads: kept, sent away or recomputed together.
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
  std::vector<std::string> patterns(const std::vector<std::vector<Value>>& per_block) const;

  Scheme said_;
  Scheme priced_;  // the same with objects in the dtype that was said of them
  const Costs& costs_;
  Chain chain_;
  bool can_choose_ = false;
  std::vector<int> made_by_;
  std::vector<bool> from_data_;             // what is made of parameters alone is not for choosing
  std::vector<std::vector<Group>> groups_;  // per block, in the same order
  std::vector<Option> options_;             // of every block
};

}  // namespace adjoint
