// Ops that are two calls in one: the calls that they would be apart, for kernels that run them so.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

struct InTurn {
  OpCall first, second;
};
InTurn linear_act_in_turn(const OpCall& call);
InTurn contract_map_in_turn(const OpCall& call);
InTurn cross_entropy_with_grad_in_turn(const OpCall& call);

}  // namespace adjoint
