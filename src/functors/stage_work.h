// What the calls of a step are to a pipeline: forward, backward or weights' gradients, of which
// chunk of the model, and so on which rank; and what ranks read of each other on the way.
#pragma once
#include <map>
#include <set>
#include <vector>

#include "schedules/schedule.h"
#include "scheme/scheme.h"

namespace adjoint {

enum class Work : uint8_t {
  kAnywhere,  // depends on no parameter, or lies in the prologue: made by whoever needs it
  kForward,
  kBackward,
  kWeight,  // of the backward pass, and gives gradients of parameters and nothing else
  kAfter,   // in the epilogue
};

class StageWork {
 public:
  // Refuses a step that stages could not run. The scheme must live as long as this.
  explicit StageWork(const Scheme& scheme);

  const Scheme& scheme;
  Schedule schedule;
  std::vector<int> holder;   // per chunk
  std::vector<int> made_by;  // per object
  std::vector<Work> work;    // per call
  std::vector<int> home;     // per call: the rank that makes it; -1: whoever needs it
  std::vector<int> chunk = {};
  std::vector<Value> loop_in, loop_out;  // per object: the other end of what crosses iterations
  // Per object of the body that other ranks read: those ranks.
  std::map<Value, std::set<int>> to = {};

  int home_of(Value v) const { return made_by[v] < 0 ? -1 : home[made_by[v]]; }
  bool in_body(Value v) const {
    return made_by[v] >= 0 && scheme.morphisms[made_by[v]].section == Section::kBody;
  }

 private:
  int stage_of(const Morphism& m) const;
  void find_work();
  void make_again_where_it_is_read();
  void find_weights();
  bool find_way(Value v, const Carry& c, std::vector<int>& way) const;
  void keep_sums_together();
  void find_destinations();
};

// Refuses a finished step that stages could not run.
void check_stages(const Scheme& whole);

}  // namespace adjoint
