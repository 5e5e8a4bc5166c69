// The gradients of attention's operands from q, k, v, the output, its log-sums and the output's
// gradient. The scores are computed again block by block; nothing of size length^2 exists.
#include <algorithm>

#include "base/counts.h"
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
  want_out.axes[2] = {"heads*size", s.kv_heads * s.group * s.value_size};
  const auto is = [](const Type& found, const Type& wanted) {
    return same_shape(found, wanted) && found.dtype == wanted.dtype;
  };
  if (!is(out, want_out) || !is(dout, want_out) || !is(lse, want_lse)) {
    fail("attention_grad: wants the output ", to_string(want_out), ", its log-sums ",
         to_string(want_lse), " and its gradient, found ", to_string(out), ", ", to_string(lse),
         " and ", to_string(dout));
  }
  std::vector<Type> made(call.inputs.begin(),
                         call.inputs.begin() + static_cast<int64_t>(operands.rows()));
  // Of the bias and the sinks: long sums, so of the wide dtype.
  for (const int option : {operands.bias, operands.sinks}) {
    if (option < 0) continue;
    made.push_back(call.inputs[option]);
    made.back().dtype = s.wide();
  }
  return made;
}

// exp(scores - lse), where `logits` may hide keys themselves.
Value weights_of(Builder& b, const AttentionScores& a, Value lse) {
  const AttentionShape& s = a.operands.shape;
  Body body;
  const Expr x = exp(input(body, 0) - input(body, 1));
  const Expr later = less(index_along(body, 1), index_along(body, 0));
  const Expr p = s.causal && s.is_plain() ? select(later, constant(body, 0), x) : x;
  body.outputs = {{.node = p.node}};
  return b.emit("map", {a.logits, lse}, {{"body", print(body)}});
}

// The gradient of the logits is weights * (dweights - delta); of the scaled products it is that
// times the slope of the cap and the scale.
Value dlogits_of(Builder& b, Value weights, Value dweights, Value delta) {
  Body body;
  body.outputs = {{.node = (input(body, 0) * (input(body, 1) - input(body, 2))).node}};
  return b.emit("map", {weights, dweights, delta}, {{"body", print(body)}});
}
Value dproducts_of(Builder& b, const AttentionScores& a, Value dlogits) {
  const AttentionShape& s = a.operands.shape;
  Body body;
  Expr x = input(body, 0) * s.scale();
  std::vector<Value> read = {dlogits};
  if (s.cap > 0) {
    const Expr tanh = input(body, 1) / s.cap;
    x = x * (1.0 - tanh * tanh);
    read.push_back(a.capped);
  }
  body.outputs = {{.node = x.node}};
  return b.emit("map", read, {{"body", print(body)}});
}

// What the kernel must give, of the output and the log-sums that it is given: where those were
// rounded when they were stored, so is what follows from them.
std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const size_t count = in.size() - 3;
  const AttentionScores a = attention_scores(b, in.first(count), attrs);
  const AttentionShape& s = a.operands.shape;
  const auto split = [&](Value x, int64_t parts) {
    return b.emit("split", {x}, {{"parts", parts}});
  };
  const auto product = [&](Value x, Value y, const char* map) {
    return b.emit("contract", {x, y}, {{"map", std::string(map)}});
  };
  const auto merge = [&](Value y) { return b.emit("merge", {y}); };
  const Value out = split(split(in[count], s.kv_heads), s.group);
  const Value dout = split(split(in[count + 2], s.kv_heads), s.group);
  const Value lse = split(in[count + 1], s.length);  // [batch, kv, group, i, 1]

  const Value weights = weights_of(b, a, lse);
  Value kept = weights, dweights = product(dout, a.v, "bikgd,bjkd->bkgij");
  if (s.dropout > 0) {
    kept = attention_dropped(b, a, in, weights, attrs);
    dweights = attention_dropped(b, a, in, dweights, attrs);
  }
  const Value delta = split(product(dout, out, "bikgd,bikgd->bkgi"), s.length);
  const Value dlogits = dlogits_of(b, weights, dweights, delta);
  const Value dproducts = dproducts_of(b, a, dlogits);

  const Value dq = merge(merge(product(dproducts, a.k, "bkgij,bjkd->bikgd")));
  const Value dk = merge(product(dproducts, a.q, "bkgij,bikgd->bjkd"));
  const Value dv = merge(product(kept, dout, "bkgij,bikgd->bjkd"));
  std::vector<Value> made = {dq, dk, dv};
  if (a.operands.packed) {
    int64_t start = 0;
    std::vector<Value> parts;
    for (const Value part : made) {
      const int64_t width = b.type(part).dim(-1);
      parts.push_back(b.emit("pad", {part}, {{"start", start}, {"size", b.type(in[0]).dim(-1)}}));
      start += width;
    }
    made = {b.emit("sum_all", parts)};
  }
  if (s.bias) {
    const Value turned = merge(product(dlogits, a.distance, "bkgij,ijn->nkg"));
    made.push_back(product(turned, attention_identity(b, s.bias, s.wide()), "nh,nm->hm"));
  }
  if (s.sinks) {
    // A sink has no value, so of its weight's gradient only -delta is left.
    Body body;
    body.outputs = {{.node = (-exp(input(body, 0) - input(body, 1))).node, .dtype = s.wide()}};
    const Value weight = b.emit("map", {a.sinks, lse}, {{"body", print(body)}});
    made.push_back(merge(product(weight, delta, "bkgiz,bkgiz->kg")));
  }
  return made;
}

}  // namespace

extern const OpDef op_attention_grad = {
    .name = "attention_grad",
    .summary = "the gradients of attention's operands",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const AttentionOperands operands(call, attention_operands(call));
          IndexMap map = attention_letters(operands);
          const std::string result = attention_result(operands);
          map.inputs.insert(map.inputs.end(), {result, "bkgs", result});
          map.outputs = attention_rows(operands);
          if (operands.bias >= 0) map.outputs.emplace_back("Hn");
          if (operands.sinks >= 0) map.outputs.emplace_back("H");
          // The gradients of k and v are sums over g and that of q is not: one object with all
          // three is neither.
          if (operands.packed && map.whole.find('g') == std::string::npos) map.whole += 'g';
          return map;
        },
    .flops =
        [](const OpCall& call) {
          // Five products where forward has two.
          const AttentionShape s = AttentionOperands(call, attention_operands(call)).shape;
          const int64_t width = s.samples * s.kv_heads * s.group * (3 * s.size + 2 * s.value_size);
          const double count = 2.0 * static_cast<double>(width) * s.pairs();
          return static_cast<int64_t>(std::min(count, double{kMostCounted}));
        },
    .differentiable = false,
    .effects =
        [](const OpCall& call) {
          return call.number("dropout", 0) > 0 ? Effect::kRandom : Effect::kPure;
        },
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
