// The gradients of attention's operands from q, k, v, the output, its log-sums and the output's
// gradient. The scores are computed again block by block; nothing of size length^2 exists.
#include <algorithm>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

size_t num_operands(const OpCall& call) {
  return call.inputs.size() >= 3 ? call.inputs.size() - 3 : 0;
}

std::vector<Type> infer(const OpCall& call) {
  const size_t count = num_operands(call);
  const AttentionOperands operands(call, count);
  const Type &out = call.inputs[count], &lse = call.inputs[count + 1],
             &dout = call.inputs[count + 2];
  const Type want_lse{operands.shape.wide(), operands.lse_axes};
  if (!same_shape(out, dout) || !same_shape(lse, want_lse)) {
    fail("attention_grad: wants the output ", shape_string(out), ", its log-sums ",
         shape_string(want_lse), " and its gradient, found ", shape_string(lse), " and ",
         shape_string(dout));
  }
  return {call.inputs.begin(), call.inputs.begin() + static_cast<int64_t>(count)};
}

// Attention's meaning, differentiated: the definition of what the kernel must give.
std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const size_t count = in.size() - 3;
  const int first = static_cast<int>(b.scheme().morphisms.size());
  const AttentionMeaning forward = attention_meaning(b, in.first(count), attrs);
  const int last = static_cast<int>(b.scheme().morphisms.size());
  const std::pair<Value, Value> seed[] = {{forward.out, in[count + 2]}};
  const auto gradients = backpropagate(b, first, last, seed, in.first(count));
  std::vector<Value> result;
  for (const auto& g : gradients) result.push_back(g.value());
  return result;
}

Launch cpu(const KernelCall& k, const Pointers& at) {
  const size_t count = num_operands(k.call);
  const AttentionOperands operands(k.call, count);
  std::vector<void*> in;
  for (const void* p : at.in) in.push_back(const_cast<void*>(p));
  const auto [q, key, v] = operands.rows(k.in_strides, in);
  const auto [dq, dk, dv] = operands.rows(k.out_strides, at.out);
  const Rows out = rows_of(k.in_strides[count], in[count]);
  const Rows dout = rows_of(k.in_strides[count + 2], in[count + 2]);
  const void* lse = in[count + 1];
  return [=, shape = operands.shape] {
    attention_backward(shape, q, key, v, out, lse, dout, dq, dk, dv, at.workspace);
  };
}

}  // namespace

extern const OpDef op_attention_grad = {
    .name = "attention_grad",
    .summary = "the gradients of attention's operands",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const size_t count = num_operands(call);
          IndexMap map{std::vector<std::string>(call.inputs.size(), "bs."),
                       std::vector<std::string>(count, "bs."), "s"};
          map.inputs[count + 1] = "b..s";
          return map;
        },
    .flops =
        [](const OpCall& call) {
          // Five products where forward has two.
          const AttentionShape s = AttentionOperands(call, num_operands(call)).shape;
          const double length = static_cast<double>(s.length);
          const double pairs = s.causal ? length * (length + 1) / 2 : length * length;
          const double count =
              10.0 * static_cast<double>(s.samples * s.kv_heads * s.group * s.size) * pairs;
          return static_cast<int64_t>(std::min(count, 9e18));
        },
    .differentiable = false,
    .one_dtype = true,
    .meaning = meaning,
    .cpu = cpu,
    .cpu_workspace =
        [](const KernelCall& k) {
          const AttentionOperands operands(k.call, num_operands(k.call));
          return int64_t{k.threads} * operands.shape.backward_bytes_per_thread();
        },
    .samples = nullptr,  // driven by attention's: out and lse must be those of q, k and v
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({2, 5, 6}), of({2, 5, 2}), of({2, 1, 1, 4}), of({2, 5, 2})},
               .attrs = {{"heads", int64_t{1}}}}};
        },
};

}  // namespace adjoint
