// What ranks on GPUs settle before their runs are made. All ranks call these, in the same order.
#pragma once
#include "comm/seat.h"
#include "plan/plan.h"

namespace adjoint {

// Ranks that are processes take a GPU of their machine each, before anything opens one. Ranks of
// one process share its GPU.
void take_own_gpu(const Communicator& world);

// Before a rank takes memory of the GPU: ranks that share it are refused where there is not enough
// for all, and others open what their GPUs speak through.
void meet_on_gpu(Seat& seat, const Plan& plan, bool deterministic);

// A product that one rank timed is that of all, so that ranks with one step have the same bits, and
// the first rank's table has every product for the run's folder. The first rank of each stage of a
// pipeline prepares its run in turn, with what those before it timed, and then the others of its
// stage do; without stages that is the first rank, then all others.
class ProductShare {
 public:
  explicit ProductShare(const Seat& seat);  // returns when it is this rank's turn
  void prepared();                          // this rank's run is

 private:
  void take_turn();  // all ranks get to know what one has timed
  Communicator world_;
  std::vector<int> first_of_;  // by stage: its first rank
  int turn_ = 0;               // how many of these have told
};

}  // namespace adjoint
