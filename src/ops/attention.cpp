// out = softmax(q k^T / sqrt(size)) v for every head, causal, with several heads of q to one of k
// and v (grouped-query). q, k and v come as three objects or side by side in one, which is read in
// place. The scores are never whole; what is kept for the gradient is one number a row, the log of
// its sum.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

double AttentionShape::scale() const { return 1 / std::sqrt(static_cast<double>(size)); }

AttentionOperands::AttentionOperands(const OpCall& call, size_t count) {
  const int64_t heads = call.integer("heads"), kv = call.integer("kv_heads", heads);
  if (count != 1 && count != 3) fail(call.op, ": wants q, k, v or one object that holds them");
  packed = count == 1;
  for (size_t i = 0; i < count; ++i) {
    const Type& t = call.inputs[i];
    if (t.rank() != 3 || !is_float(t.dtype) || t.dtype != call.inputs[0].dtype) {
      fail(call.op, ": wants operands [batch, seq, heads*size] of one floating dtype, found ",
           to_string(t));
    }
  }
  if (heads < 1 || kv < 1 || heads % kv) {
    fail(call.op, ": ", heads, " heads do not divide among ", kv, " kv heads");
  }
  const Type& q = call.inputs[0];
  const int64_t parts = packed ? heads + 2 * kv : heads;
  if (q.dim(2) % parts) {
    fail(call.op, ": a row of ", q.axes[2].name, "=", q.dim(2), " does not split into ", parts,
         " heads", packed ? " of q, k and v" : "");
  }
  shape = {.samples = q.dim(0),
           .length = q.dim(1),
           .kv_heads = kv,
           .group = heads / kv,
           .size = q.dim(2) / parts,
           .causal = call.integer("causal", 1) != 0,
           .dtype = q.dtype};
  for (size_t i = 1; i < count; ++i) {
    const Type& t = call.inputs[i];
    if (t.dim(0) != q.dim(0) || t.dim(1) != q.dim(1) || t.dim(2) != kv * shape.size) {
      fail(call.op, ": k and v must be [", q.dim(0), ", ", q.dim(1), ", ", kv * shape.size,
           "] beside this q, found ", shape_string(t));
    }
  }
  lse_axes = {q.axes[0], {"kv_heads", kv}, {"group", heads / kv}, q.axes[1]};
}

AttentionScores attention_scores(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  OpCall call{.op = "attention", .inputs = {}, .attrs = attrs};
  for (const Value v : in) call.inputs.push_back(b.type(v));
  const AttentionShape s = AttentionOperands(call, in.size()).shape;
  Value q = in[0], k = in[0], v = in[0];
  if (in.size() == 3) {
    k = in[1], v = in[2];
  } else {
    const int64_t kv_width = s.kv_heads * s.size, q_width = kv_width * s.group;
    q = b.emit("slice", {in[0]}, {{"start", int64_t{0}}, {"size", q_width}});
    k = b.emit("slice", {in[0]}, {{"start", q_width}, {"size", kv_width}});
    v = b.emit("slice", {in[0]}, {{"start", q_width + kv_width}, {"size", kv_width}});
  }
  const auto split = [&](Value x, int64_t parts) {
    return b.emit("split", {x}, {{"parts", parts}});
  };
  q = split(split(q, s.kv_heads), s.group);
  k = split(k, s.kv_heads);
  v = split(v, s.kv_heads);
  const Value scores = b.emit("contract", {q, k}, {{"map", std::string("bikgd,bjkd->bkgij")}});
  return {s, q, k, v, b.emit("scale", {scores}, {{"by", s.scale()}})};
}

std::vector<std::string> attention_rows(size_t count) {
  if (count == 1) return {"bsP"};
  return {"bsQ", "bsK", "bsK"};
}

IndexMap attention_letters() {
  return {.inputs = {},
          .outputs = {},
          .whole = "sd",
          .merged = {{'Q', {"kgd"}}, {'K', {"kd"}}, {'P', {"kgd", "kd", "kd"}}},
          .counts = {{"heads", "kg"}, {"kv_heads", "k"}}};
}

namespace {

std::vector<Value> surface(SurfaceCall& call) {
  std::vector<Value> operands = {call.tensor("q")};
  if (call.has("k") != call.has("v")) fail("attention: k and v come together");
  if (call.has("k")) {
    operands.push_back(call.tensor("k"));
    operands.push_back(call.tensor("v"));
  }
  const int64_t heads = call.size("heads");
  const int64_t kv = call.has("kv_heads") ? call.size("kv_heads") : heads;
  return {call.builder.emit_all(
      "attention", operands,
      {{"heads", heads}, {"kv_heads", kv}, {"causal", int64_t{call.flag("causal")}}})[0]};
}

std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const AttentionScores a = attention_scores(b, in, attrs);
  const int64_t causal = a.shape.causal;
  const Value weights = b.emit("softmax", {a.scores}, {{"causal", causal}});
  const Value mixed =
      b.emit("contract", {weights, a.v}, {{"map", std::string("bkgij,bjkd->bikgd")}});
  const Value out = b.emit("merge", {b.emit("merge", {mixed})});

  Body log_sum;
  Expr x = input(log_sum, 0);
  if (causal) {
    x = select(less(index_along(log_sum, 1), index_along(log_sum, 0)), constant(log_sum, -1e30), x);
  }
  const Expr highest = row_max(x);
  log_sum.outputs = {{.node = (log(row_sum(exp(x - highest))) + highest).node,
                      .row = BodyOutput::Row::kOne,
                      .dtype = a.shape.wide()}};
  const Value lse = b.emit("merge", {b.emit("map", {a.scores}, {{"body", print(log_sum)}})});
  return {out, lse};
}

std::vector<Type> infer(const OpCall& call) {
  const AttentionOperands operands(call, call.inputs.size());
  const AttentionShape& s = operands.shape;
  Type out = call.inputs[0];
  if (operands.packed) out.axes[2] = {"heads*size", s.kv_heads * s.group * s.size};
  return {out, {s.wide(), operands.lse_axes}};
}

void grad(GradCall& g) {
  std::vector<Value> operands(g.inputs.begin(), g.inputs.end());
  operands.insert(operands.end(), {g.outputs[0], g.outputs[1], g.dout()});
  const std::vector<Value> made = g.builder.emit_all("attention_grad", operands, g.call.attrs);
  for (size_t i = 0; i < g.inputs.size(); ++i) g.input_grads[i] = made[i];
}

std::vector<Sample> samples() {
  const auto with = [](std::vector<Type> inputs, int64_t heads, int64_t kv, int64_t causal) {
    return Sample{.inputs = std::move(inputs),
                  .attrs = {{"heads", heads}, {"kv_heads", kv}, {"causal", causal}}};
  };
  return {with({of({2, 5, 4}), of({2, 5, 4}), of({2, 5, 4})}, 2, 2, 1),
          with({of({1, 5, 12}), of({1, 5, 6}), of({1, 5, 6})}, 4, 2, 1),  // grouped
          with({of({2, 4, 9})}, 1, 1, 1),                                 // packed
          with({of({1, 5, 16})}, 4, 2, 1),                                // packed and grouped
          with({of({1, 3, 4}), of({1, 3, 4}), of({1, 3, 4})}, 2, 2, 0),
          with({of({1, 1, 2}), of({1, 1, 2}), of({1, 1, 2})}, 1, 1, 1),
          with({of({1, 101, 34}), of({1, 101, 17}), of({1, 101, 17})}, 2, 1, 1)};  // two blocks
}

std::vector<Sample> refused() {
  const auto with = [](std::vector<Type> inputs, int64_t heads, int64_t kv) {
    return Sample{.inputs = std::move(inputs), .attrs = {{"heads", heads}, {"kv_heads", kv}}};
  };
  return {with({of({2, 5, 4}), of({2, 5, 4}), of({2, 5, 4})}, 3, 3),
          with({of({2, 5, 6}), of({2, 5, 4}), of({2, 5, 4})}, 3, 2),
          with({of({2, 5, 4}), of({2, 4, 4}), of({2, 4, 4})}, 2, 2),
          with({of({2, 5, 4}), of({2, 5, 4})}, 2, 2), with({of({5, 6})}, 2, 2)};
}

}  // namespace

extern const OpDef op_attention = {
    .name = "attention",
    .summary = "softmax(q k^T / sqrt(size)) v by heads, causal, grouped-query; q may hold k and v",
    .params = {{"q"},
               {"heads", Param::Kind::kSize},
               {"causal", Param::Kind::kFlag, "yes"},
               {"k", Param::Kind::kMaybeTensor, "none"},
               {"v", Param::Kind::kMaybeTensor, "none"},
               {"kv_heads", Param::Kind::kSize, "none"}},
    .surface = surface,
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          IndexMap map = attention_letters();
          map.inputs = attention_rows(call.inputs.size());
          map.outputs = {"bsQ", "bkgs"};
          return map;
        },
    .flops =
        [](const OpCall& call) {
          // Two products; a causal row sees half of the keys on average.
          const AttentionShape s = AttentionOperands(call, call.inputs.size()).shape;
          const double length = static_cast<double>(s.length);
          const double pairs = s.causal ? length * (length + 1) / 2 : length * length;
          const double count =
              4.0 * static_cast<double>(s.samples * s.kv_heads * s.group * s.size) * pairs;
          return static_cast<int64_t>(std::min(count, 9e18));
        },
    .grad = grad,
    .output_names = {"lse"},
    .one_dtype = true,
    .meaning = meaning,
    .cost = CostClass::kAttention,
    .attends = true,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
