// Objects in storages, for one order of the calls.
#pragma once
#include <vector>

#include "plan/sharing.h"

namespace adjoint {

// Everything of the plan but the offsets of what is no state: calls, storages with their tenants
// and lifetimes, live bytes per tier.
Plan lay_in_storages(const Scheme& scheme, const PlanOptions& options, const Sharing& sharing,
                     const std::vector<int>& order);

}  // namespace adjoint
