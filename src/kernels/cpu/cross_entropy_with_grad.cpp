#include <algorithm>
#include <cstddef>

#include "kernels/backend.h"
#include "ops/in_turn.h"

namespace adjoint {

namespace {

// The two separate calls. The log-sums between them are at the beginning of the workspace.
struct Calls {
  OpCall loss, gradient;
  KernelCall first, second;
  Bytes log_sums;  // in the workspace

  explicit Calls(const KernelCall& k)
      : loss(cross_entropy_with_grad_in_turn(k.call).first),
        gradient(cross_entropy_with_grad_in_turn(k.call).second),
        first(loss, k),
        second(gradient, k),
        log_sums(round_up(lse().bytes(), Bytes{64})) {
    const Strides dense = dense_strides(lse());
    first.outputs = {k.outputs[0], k.outputs[1], lse()};
    first.in_strides = {k.in_strides[0], k.in_strides[1]};
    first.out_strides = {k.out_strides[0], k.out_strides[1], dense};
    second.outputs = {k.outputs[2]};
    second.in_strides = {k.in_strides[0], k.in_strides[1], dense, k.in_strides[2]};
    second.out_strides = {k.out_strides[2]};
  }

  const Type& lse() const { return gradient.inputs[2]; }
};

Launch in_turn(const KernelCall& k, const Pointers& at) {
  const Calls calls(k);
  void* lse = at.workspace;
  void* rest = static_cast<std::byte*>(at.workspace) + calls.log_sums.count;
  const Launch lose = cpu_backend.prepare(
      calls.first,
      {.in = {at.in[0], at.in[1]}, .out = {at.out[0], at.out[1], lse}, .workspace = rest});
  const Launch go_back = cpu_backend.prepare(
      calls.second,
      {.in = {at.in[0], at.in[1], lse, at.in[2]}, .out = {at.out[2]}, .workspace = rest});
  return [lose, go_back] {
    lose();
    go_back();
  };
}

Bytes workspace(const KernelCall& k) {
  const Calls calls(k);
  return calls.log_sums + std::max(workspace_bytes(calls.first), workspace_bytes(calls.second));
}

}  // namespace

extern const Kernel cpu_cross_entropy_with_grad = {
    .op = "cross_entropy_with_grad",
    .prepare = in_turn,
    .workspace = workspace,
};

}  // namespace adjoint
