// Who owns every byte at every read, found out from the scheme, the order and the offsets alone.
#pragma once
#include <string>

#include "plan/plan.h"

namespace adjoint {

// The first read, in the order of the step, that does not find what was written for it, in words;
// "" where every read does. An object owns its bytes from the call that makes it to the last that
// reads it, through as many iterations of the body as there are; data that lands owns its place
// always, and a workspace what it has while its call runs. Who writes into bytes that another owns
// must take its place: by a call that reads it for the last time and may write over it.
std::string spoiled_read(const Scheme& scheme, const Plan& plan);

}  // namespace adjoint
