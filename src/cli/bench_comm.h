// adjoint bench comm.
#pragma once
#include "cli/command.h"

namespace adjoint {

void add_bench_comm(CLI::App& bench, Action& action);

}  // namespace adjoint
