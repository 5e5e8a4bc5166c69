// What the functors that make gangs share: which calls are of one kind, and one call in their
// stead.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "scheme/scheme.h"

namespace adjoint {

// Op, constants and place in the step.
std::string gang_kind(const Morphism& m);

// Calls of one kind as one. Operands from `own` on are shared: those of the last call are all's.
Morphism join_calls(const std::vector<const Morphism*>& calls, size_t own, Source source);

// The same scheme with gangs in place of calls. Each gang stands where one of its calls did: `at`
// maps that place to all of them, in order.
Scheme with_gangs(Scheme scheme, const std::map<int, std::vector<int>>& at, const Source& source);
// The same for gangs that are made already, by place; `joined` are all calls in them.
Scheme with_gangs(Scheme scheme, std::map<int, Morphism> gangs, const std::set<int>& joined);

}  // namespace adjoint
