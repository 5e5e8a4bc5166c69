// A gang as kernels see it: call by call.
#pragma once
#include <algorithm>

#include "kernels/kernel.h"
#include "ops/gang.h"

namespace adjoint {

// Calls f(i, call) for every call, as a kernel sees it.
template <class F>
void for_each_call(const KernelCall& k, const F& f) {
  const GangMembers m = gang_members(k.call);
  for (int64_t i = 0; i < m.calls; ++i) {
    const OpCall call = m.call(k.call, i);
    KernelCall one(call, k);
    one.outputs = m.results(k.outputs, i);
    one.in_strides = m.operands(k.in_strides, i);
    one.out_strides = m.results(k.out_strides, i);
    f(i, one);
  }
}

inline bool is_wide(const KernelCall& k) {
  return std::any_of(k.outputs.begin(), k.outputs.end(),
                     [](const Type& t) { return t.dtype == Dtype::kF64; });
}

inline Launch one_after_another(std::vector<Launch> launches) {
  return [launches = std::move(launches)] {
    for (const Launch& launch : launches) launch();
  };
}

inline Pointers pointers_of(const GangMembers& m, const Pointers& at, int64_t i) {
  return {.in = m.operands(at.in, i),
          .out = m.results(at.out, i),
          .workspace = at.workspace,
          .stream = at.stream};
}

}  // namespace adjoint
