// Assigns objects to storages, for one order of the calls.
#pragma once
#include <vector>

#include "plan/sharing.h"

namespace adjoint {

// A plan without the offsets of storages that hold no state: calls, storages with their tenants and
// lifetimes, live bytes per tier.
Plan lay_in_storages(const Scheme& scheme, const PlanOptions& options, const Sharing& sharing,
                     const std::vector<int>& order);

}  // namespace adjoint
