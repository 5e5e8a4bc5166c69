// The readings of a body, one file each: body_reference.cpp, body_cpu.cpp, body_facts.cpp.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

IndexMap body_index_map(const OpCall& call);
std::vector<std::pair<int, int>> body_may_overwrite(const OpCall& call);

// Elements of a body worth a thread: some microseconds, as much as waking it takes.
inline constexpr int64_t kWorthAThread = 16384;

Launch prepare_body_reference(const KernelCall& call, const Pointers& at);
Launch prepare_body_cpu(const KernelCall& call, const Pointers& at);
Bytes body_workspace(const KernelCall& call);
Launch prepare_body_cuda(const KernelCall& call, const Pointers& at);
// The same, computed in float64 before it is rounded to what is stored.
Launch prepare_wide_body_cuda(const KernelCall& call, const Pointers& at);
Bytes body_cuda_workspace(const KernelCall& call);

// A body that sums nothing and draws nothing, in units that may run in any order and at the same
// time, each on registers that nobody else uses meanwhile.
struct BodyUnits {
  int64_t count = 0, elements = 0;  // elements of one unit
  std::function<void(int64_t begin, int64_t end, std::byte* registers)> run = {};
};
BodyUnits prepare_body_units(const KernelCall& call, const Pointers& at);
Bytes body_unit_registers(const KernelCall& call);
bool runs_in_units(const Body& body);

// A body that only adds everything up, to single numbers, and draws nothing.
bool makes_single_numbers(const Body& body);
// One of these whose results are sums of a function of each element by itself.
bool adds_elements(const Body& body);

// The strides of an operand of type `type` along each axis of `space`, 0 where it is stretched.
Strides stretch(const Strides& strides, const Type& type, const std::vector<Axis>& space);
// The strides of an output, 0 along the axes that it sums or drops.
Strides stretch_output(const Strides& strides, const BodyOutput& output, size_t space_rank);

}  // namespace adjoint
