// The gradients of attention's operands from q, k, v, the output, its log-sums and the output's
// gradient. The scores are computed again block by block; nothing of size length^2 exists.
#include <algorithm>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/samples.h"

namespace adjoint {

size_t attention_operands(const OpCall& call) {
  return call.inputs.size() >= 3 ? call.inputs.size() - 3 : 0;
}

namespace {

std::vector<Type> infer(const OpCall& call) {
  const size_t count = attention_operands(call);
  const AttentionOperands operands(call, count);
  const Type &out = call.inputs[count], &lse = call.inputs[count + 1],
             &dout = call.inputs[count + 2];
  const Type want_lse{operands.shape.wide(), operands.lse_axes};
  Type want_out = call.inputs[0];
  const AttentionShape& s = operands.shape;
  want_out.axes[2] = {"heads*size", s.kv_heads * s.group * s.size};
  const auto is = [](const Type& found, const Type& wanted) {
    return same_shape(found, wanted) && found.dtype == wanted.dtype;
  };
  if (!is(out, want_out) || !is(dout, want_out) || !is(lse, want_lse)) {
    fail("attention_grad: wants the output ", to_string(want_out), ", its log-sums ",
         to_string(want_lse), " and its gradient, found ", to_string(out), ", ", to_string(lse),
         " and ", to_string(dout));
  }
  return {call.inputs.begin(), call.inputs.begin() + static_cast<int64_t>(count)};
}

// What the kernel must give, of the output and the log-sums that it is given: where those were
// rounded when they were stored, so is what follows from them.
std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const size_t count = in.size() - 3;
  const AttentionScores a = attention_scores(b, in.first(count), attrs);
  const AttentionShape& s = a.shape;
  const auto split = [&](Value x, int64_t parts) {
    return b.emit("split", {x}, {{"parts", parts}});
  };
  const auto product = [&](Value x, Value y, const char* map) {
    return b.emit("contract", {x, y}, {{"map", std::string(map)}});
  };
  const Value out = split(split(in[count], s.kv_heads), s.group);
  const Value dout = split(split(in[count + 2], s.kv_heads), s.group);
  const Value lse = split(in[count + 1], s.length);  // [batch, kv, group, i, 1]

  Body probability;
  const Expr x = exp(input(probability, 0) - input(probability, 1));
  const Expr hidden = less(index_along(probability, 1), index_along(probability, 0));
  const Expr p = s.causal ? select(hidden, constant(probability, 0), x) : x;
  probability.outputs = {{.node = p.node}};
  const Value weights = b.emit("map", {a.scores, lse}, {{"body", print(probability)}});

  const Value dweights = product(dout, a.v, "bikgd,bjkd->bkgij");
  const Value delta = split(product(dout, out, "bikgd,bikgd->bkgi"), s.length);
  Body score;
  const Expr ds = input(score, 0) * (input(score, 1) - input(score, 2)) * s.scale();
  score.outputs = {{.node = ds.node}};
  const Value dscores = b.emit("map", {weights, dweights, delta}, {{"body", print(score)}});

  const auto merge = [&](Value y) { return b.emit("merge", {y}); };
  const Value dq = merge(merge(product(dscores, a.k, "bkgij,bjkd->bikgd")));
  const Value dk = merge(product(dscores, a.q, "bkgij,bikgd->bjkd"));
  const Value dv = merge(product(weights, dout, "bkgij,bikgd->bjkd"));
  if (count == 3) return {dq, dk, dv};
  int64_t start = 0;
  std::vector<Value> parts;
  for (const Value part : {dq, dk, dv}) {
    const int64_t width = b.type(part).dim(-1);
    parts.push_back(b.emit("pad", {part}, {{"start", start}, {"size", b.type(in[0]).dim(-1)}}));
    start += width;
  }
  return {b.emit("sum_all", parts)};
}

}  // namespace

extern const OpDef op_attention_grad = {
    .name = "attention_grad",
    .summary = "the gradients of attention's operands",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const size_t count = attention_operands(call);
          IndexMap map = attention_letters();
          map.inputs = map.outputs = attention_rows(count);
          map.inputs.insert(map.inputs.end(), {"bsQ", "bkgs", "bsQ"});
          // The gradients of k and v are sums over g and that of q is not: one object with all
          // three is neither.
          if (count == 1) map.whole += 'g';
          return map;
        },
    .flops =
        [](const OpCall& call) {
          // Five products where forward has two.
          const AttentionShape s = AttentionOperands(call, attention_operands(call)).shape;
          const double length = static_cast<double>(s.length);
          const double pairs = s.causal ? length * (length + 1) / 2 : length * length;
          const double count =
              10.0 * static_cast<double>(s.samples * s.kv_heads * s.group * s.size) * pairs;
          return static_cast<int64_t>(std::min(count, 9e18));
        },
    .differentiable = false,
    .one_dtype = true,
    .meaning = meaning,
    .cost = CostClass::kAttentionGrad,
    .samples = nullptr,
    // driven by attention's: out and lse must be those of q, k and v
    .refused =
        [] {
          // q, k and v in one object of rows of 6.
          const auto with = [](Type out, Type lse, Type dout) {
            return Sample{
                .inputs = {of({2, 5, 6}), std::move(out), std::move(lse), std::move(dout)},
                .attrs = {{"heads", int64_t{1}}}};
          };
          return std::vector<Sample>{
              with(of({2, 5, 2}), of({2, 1, 1, 4}), of({2, 5, 2})),
              with(of({2, 5, 4}), of({2, 1, 1, 5}), of({2, 5, 4})),
              with(of({2, 5, 2}), of({2, 1, 1, 5}, Dtype::kBF16), of({2, 5, 2})),
              with(of({2, 5, 2}), of({2, 1, 1, 5}, Dtype::kF64), of({2, 5, 2})),
              with(of({2, 5, 2}, Dtype::kBF16), of({2, 1, 1, 5}), of({2, 5, 2})),
              with(of({2, 5, 2}), of({2, 1, 1, 5}), of({2, 5, 2}, Dtype::kBF16))};
        },
};

}  // namespace adjoint
