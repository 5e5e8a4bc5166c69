// A step as a trace for Perfetto or chrome://tracing (the JSON Trace Event Format): one event per
// call, tracks for arithmetic, copies between tiers, collectives, phases and blocks, and counters
// of memory. Collectives run concurrently with the arithmetic, and on a GPU copies do, and the
// trace shows that. Events are written by hand, because Perfetto's library records a running
// program, and this is a plan.
#pragma once
#include <string>
#include <vector>

#include "plan/plan.h"

namespace adjoint {

struct TraceFileOptions {
  std::string title = {};            // name of the process in the viewer
  std::vector<double> seconds = {};  // per planned call; none: a microsecond each
};

std::string chrome_trace(const Scheme& scheme, const Plan& plan, const TraceFileOptions& options);

}  // namespace adjoint
