// What each rank of a pipeline makes, which inputs it holds, and what it needs of other ranks after
// all parts.
#pragma once
#include <map>
#include <set>
#include <vector>

#include "functors/stage_work.h"

namespace adjoint {

class StageNeeds {
 public:
  explicit StageNeeds(const StageWork& work);  // which must live as long as this

  struct OfRank {
    std::vector<bool> calls;      // that the rank makes, of any section
    std::set<Value> from_others;  // in the epilogue
    std::set<Value> holds;        // of the inputs
  };
  std::vector<OfRank> of_rank = {};
  std::vector<std::set<Value>> asked = {};  // per rank: inputs that it holds though no call asks
  std::map<Value, int> first_holder = {};   // per input
  std::vector<int> level = {};              // per object of the epilogue: messages on the way to it

 private:
  void find_calls(int rank);
  void find_homes();
  void find_levels();

  const StageWork& work_;
};

}  // namespace adjoint
