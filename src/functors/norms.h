// Norms by role (analysis/roles.h), for people who watch a run: of gradients as further outputs of
// the step itself, whose sums of squares are there anyway, and of weights as a scheme of its own,
// which runs beside the step's state whenever somebody asks.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// Where the norm of a role's gradients or weights is, and the role of one.
Source norm_source(const std::string& role);
std::string role_of_norm(const Source& source);

// The parameters of `step` by role, without those that it holds as codes; `said` as below. A stage
// of a pipeline has all roles, and under each what it holds itself.
std::map<std::string, std::vector<Value>> weights_by_role(const Scheme& said, const Scheme& step);

// One output per role: the sum of squares of its parameters. `said` is the step before anything is
// realized (said_step), which tells roles, and `step` the one that holds the parameters. Those that
// it holds as codes are left out.
Scheme weight_squares(const Scheme& said, const Scheme& step);

}  // namespace adjoint
