// sum, count = cross_entropy(logits, targets); dlogits = cross_entropy_grad of the same, by the
// scale that the sum's gradient is. The log-sums between the two are nobody else's. dlogits may
// take the logits' place. A GPU then reads the logits once; the CPU runs the two one after the
// other.
#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "ops/builder.h"
#include "ops/cuda_kernels.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

OpCall loss_call(const OpCall& call) {
  return {.op = "cross_entropy", .inputs = {call.inputs[0], call.inputs[1]}, .attrs = call.attrs};
}

OpCall gradient_call(const OpCall& call) {
  const Type lse = infer_types(loss_call(call))[2];
  return {.op = "cross_entropy_grad",
          .inputs = {call.inputs[0], call.inputs[1], lse, call.inputs[2]},
          .attrs = call.attrs};
}

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 3) {
    fail("cross_entropy_with_grad: wants logits, targets and the gradient of the sum");
  }
  const std::vector<Type> loss = infer_types(loss_call(call));
  return {loss[0], loss[1], infer_types(gradient_call(call))[0]};
}

std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const std::vector<Value> loss = b.emit_all("cross_entropy", {in[0], in[1]}, attrs);
  return {loss[0], loss[1], b.emit("cross_entropy_grad", {in[0], in[1], loss[2], in[2]}, attrs)};
}

// The two calls as they would be apart. Between them the log-sums lie at the workspace's beginning.
struct Calls {
  OpCall loss, gradient;
  KernelCall first, second;
  Bytes log_sums;  // in the workspace

  explicit Calls(const KernelCall& k)
      : loss(loss_call(k.call)),
        gradient(gradient_call(k.call)),
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
  const Launch lose = prepare_cpu(
      calls.first,
      {.in = {at.in[0], at.in[1]}, .out = {at.out[0], at.out[1], lse}, .workspace = rest});
  const Launch go_back = prepare_cpu(
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

std::vector<Sample> samples() {
  const auto at = [](std::vector<int64_t> rows, int64_t classes, int64_t ignore) {
    Type targets = of(rows, Dtype::kI32), logits = of(rows);
    logits.axes.push_back({"v", classes});
    return Sample{.inputs = {logits, targets, of({})},
                  .attrs = {{"ignore", ignore}},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = classes,
                  .ignored_id = ignore};
  };
  // On a GPU a warp a row, and a block a row.
  return {at({3}, 5, -1), at({2, 3}, 37, -100), at({97}, 2, 1), at({4}, 1027, -100)};
}

}  // namespace

extern const OpDef op_cross_entropy_with_grad = {
    .name = "cross_entropy_with_grad",
    .summary = "cross_entropy's (sum, count), and the gradient of its logits",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[1].rank());
          return IndexMap{{rows + "v", rows, ""}, {"", "", rows + "v"}, "v"};
        },
    .flops =
        [](const OpCall& call) {
          return count_flops(loss_call(call)) + count_flops(gradient_call(call));
        },
    .differentiable = false,
    .output_names = {"count", "dlogits"},
    .wants_dense = true,
    .takes_padding = true,
    .may_overwrite = {{2, 0}},
    .meaning = meaning,
    .cpu = in_turn,
    .cpu_workspace = workspace,
    .cuda = cross_entropy_with_grad_cuda,
    .cuda_workspace = cross_entropy_cuda_workspace,
    .samples = samples,
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({3, 5}), of({4}, Dtype::kI32), of({})}},
                                     {.inputs = {of({3, 5}), of({3}, Dtype::kI32)}},
                                     {.inputs = {of({3, 5}), of({3}, Dtype::kI32), of({3})}}};
        },
};

}  // namespace adjoint
