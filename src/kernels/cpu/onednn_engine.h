// oneDNN's engine for the CPU, with instructions that really run here.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>

namespace adjoint {

// Everybody who multiplies by oneDNN does so with this one: the first call settles, for the whole
// process, which instructions are used.
const dnnl::engine& onednn_engine();

// Whether AMX can be used: the processor offers it and tells its sizes, and the kernel lends it.
bool amx_runs_here();

}  // namespace adjoint
