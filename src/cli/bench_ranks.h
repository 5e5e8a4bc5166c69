// adjoint bench ranks.
#pragma once
#include "cli/command.h"

namespace adjoint {

void add_bench_ranks(CLI::App& bench, Action& action);

}  // namespace adjoint
