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

// The products that the first rank timed are those of all, so that all have the same bits.
void share_products(const Communicator& world);

}  // namespace adjoint
