// Attention in smaller ops, with the scores whole: its meaning, of which the gradient's takes the
// scores and the dropped weights.
#include <cmath>
#include <optional>

#include "ops/attention.h"

namespace adjoint {

namespace {

Value split_last(Builder& b, Value x, int64_t parts) {
  return b.emit("split", {x}, {{"parts", parts}});
}

Value emit_map(Builder& b, const Body& body, std::vector<Value> operands) {
  return b.emit("map", std::move(operands), {{"body", print(body)}});
}

// Where query i and key j do not see each other, as 1 or 0; operand `segments` is i's, the next
// j's.
std::optional<Expr> hidden(Body& body, const AttentionShape& s, int segments) {
  const Expr i = index_along(body, 1), j = index_along(body, 0);
  std::optional<Expr> any;
  const auto hide = [&](Expr where) { any = any ? max(*any, where) : where; };
  const double reach = static_cast<double>(s.window - 1);
  if (s.causal) hide(less(i, j));
  if (s.window) hide(less(j + reach, i));
  if (s.window && !s.causal) hide(less(i + reach, j));
  if (s.segments) hide(1.0 - equal(input(body, segments), input(body, segments + 1)));
  return any;
}

}  // namespace

Expr alibi_slope(Body& body, const AttentionShape& s) {
  const double heads = static_cast<double>(s.kv_heads * s.group);
  const Expr head = index_along(body, 3) * static_cast<double>(s.group) + index_along(body, 2);
  const double power = std::exp2(std::floor(std::log2(heads)));
  const double each = -8 * std::log(2.0) / power;
  const Expr below = exp((head + 1.0) * each), above = exp((head - power + 0.5) * each);
  return select(less(head, constant(body, power)), below, above);
}

namespace {

// [batch, s] -> [batch, 1, 1, s, 1] and [batch, 1, 1, 1, s]
std::pair<Value, Value> by_query_and_key(Builder& b, Value ids) {
  const int64_t length = b.type(ids).dim(1);
  const Value spread = split_last(b, split_last(b, ids, 1), 1);
  return {split_last(b, spread, length), split_last(b, spread, 1)};
}

// 1 where the distance of query i and key j is n, or beyond the last of them: [i, j, n].
Value distances(Builder& b, const AttentionShape& s) {
  Body body;
  const Expr zero = constant(body, 0), last = constant(body, static_cast<double>(s.bias - 1));
  const Expr distance = min(max(index_along(body, 2) - index_along(body, 1), zero), last);
  body.outputs = {{.node = equal(distance, index_along(body, 0)).node, .dtype = s.wide()}};
  return b.emit(
      "map", {},
      {{"body", print(body)}, {"shape", std::vector<int64_t>{s.length, s.length, s.bias}}});
}

// [heads, n] -> [kv, group, i, j]
Value bias_of_pairs(Builder& b, const AttentionShape& s, Value table, Value distance) {
  const Value turned = b.emit("contract", {table, attention_identity(b, s.bias, s.dtype)},
                              {{"map", std::string("hn,mn->mh")}});
  return b.emit("contract", {split_last(b, turned, s.kv_heads), distance},
                {{"map", std::string("nkg,ijn->kgij")}});
}

}  // namespace

Value attention_identity(Builder& b, int64_t n, Dtype dtype) {
  Body body;
  body.outputs = {{.node = equal(index_along(body, 1), index_along(body, 0)).node, .dtype = dtype}};
  return b.emit("map", {}, {{"body", print(body)}, {"shape", std::vector<int64_t>{n, n}}});
}

AttentionScores attention_scores(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  OpCall call{.op = "attention", .inputs = {}, .attrs = attrs};
  for (const Value v : in) call.inputs.push_back(b.type(v));
  const AttentionOperands operands(call, in.size());
  const AttentionShape& s = operands.shape;
  Value q = in[0], k = in[0], v = in[0];
  if (!operands.packed) {
    k = in[1], v = in[2];
  } else {
    const int64_t kv_width = s.kv_heads * s.size, q_width = kv_width * s.group;
    q = b.emit("slice", {in[0]}, {{"start", int64_t{0}}, {"size", q_width}});
    k = b.emit("slice", {in[0]}, {{"start", q_width}, {"size", kv_width}});
    v = b.emit("slice", {in[0]}, {{"start", q_width + kv_width}, {"size", kv_width}});
  }
  q = split_last(b, split_last(b, q, s.kv_heads), s.group);
  k = split_last(b, k, s.kv_heads);
  v = split_last(b, v, s.kv_heads);
  const Value products = b.emit("contract", {q, k}, {{"map", std::string("bikgd,bjkd->bkgij")}});
  const Value scores = b.emit("scale", {products}, {{"by", s.scale()}});
  AttentionScores a{operands, q, k, v, scores, scores, scores};
  if (s.is_plain()) return a;

  if (s.cap > 0) {
    Body capped;
    capped.outputs = {{.node = (tanh(input(capped, 0) / s.cap) * s.cap).node}};
    a.capped = emit_map(b, capped, {scores});
  }
  if (s.sinks) {
    const Value by_head = split_last(b, in[operands.sinks], s.kv_heads);
    a.sinks = split_last(b, split_last(b, by_head, s.group), 1);
  }
  Body body;
  std::vector<Value> read = {a.capped};
  Expr x = input(body, 0);
  if (s.alibi) {
    const Expr distance = index_along(body, 1) - index_along(body, 0);
    x = x - alibi_slope(body, s) * max(distance, -distance);
  }
  if (s.bias) {
    a.distance = distances(b, s);
    x = x + input(body, static_cast<int>(read.size()));
    read.push_back(bias_of_pairs(b, s, in[operands.bias], a.distance));
  }
  const int segments = static_cast<int>(read.size());
  if (s.segments) {
    const auto [mine, theirs] = by_query_and_key(b, in[operands.segments]);
    read.push_back(mine);
    read.push_back(theirs);
  }
  if (const auto unseen = hidden(body, s, segments)) {
    x = select(*unseen, constant(body, -1e30), x);
  }
  body.outputs = {{.node = x.node}};
  a.logits = emit_map(b, body, read);
  return a;
}

Value attention_dropped(Builder& b, const AttentionScores& a, std::span<const Value> in,
                        Value weights, const Attrs& attrs) {
  const double rate = a.operands.shape.dropout;
  const auto key = attrs.find("key");
  Body body;
  const Expr drawn =
      random_uniform(body, 1, key == attrs.end() ? "" : std::get<std::string>(key->second));
  const Expr kept = input(body, 0) * (1 / (1 - rate));
  body.outputs = {
      {.node = select(less(drawn, constant(body, rate)), constant(body, 0), kept).node}};
  return emit_map(b, body, {weights, in[a.operands.counter]});
}

namespace {

// softmax over the logits and the head's sink, and the log of its sum.
std::pair<Value, Value> softmax_of(Builder& b, const AttentionScores& a) {
  const auto from_logits = [&](bool log_sum) {
    Body body;
    const Expr x = input(body, 0);
    Expr highest = row_max(x);
    if (a.operands.shape.sinks) highest = max(highest, input(body, 1));
    Expr sum = row_sum(exp(x - highest));
    if (a.operands.shape.sinks) sum = sum + exp(input(body, 1) - highest);
    body.outputs = {{.node = (exp(x - highest) / sum).node}};
    if (log_sum) {
      body.outputs = {{.node = (log(sum) + highest).node,
                       .row = BodyOutput::Row::kOne,
                       .dtype = a.operands.shape.wide()}};
    }
    std::vector<Value> read = {a.logits};
    if (a.operands.shape.sinks) read.push_back(a.sinks);
    return emit_map(b, body, read);
  };
  const Value weights = from_logits(false);
  return {weights, from_logits(true)};
}

// The same where scores are only scaled and maybe causal.
std::pair<Value, Value> plain_softmax_of(Builder& b, const AttentionScores& a) {
  const int64_t causal = a.operands.shape.causal;
  const Value weights = b.emit("softmax", {a.scores}, {{"causal", causal}});
  Body log_sum;
  Expr x = input(log_sum, 0);
  if (causal) {
    x = select(less(index_along(log_sum, 1), index_along(log_sum, 0)), constant(log_sum, -1e30), x);
  }
  const Expr highest = row_max(x);
  log_sum.outputs = {{.node = (log(row_sum(exp(x - highest))) + highest).node,
                      .row = BodyOutput::Row::kOne,
                      .dtype = a.operands.shape.wide()}};
  return {weights, emit_map(b, log_sum, {a.scores})};
}

}  // namespace

std::vector<Value> attention_meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const AttentionScores a = attention_scores(b, in, attrs);
  const AttentionShape& s = a.operands.shape;
  auto [weights, log_sums] = s.is_plain() ? plain_softmax_of(b, a) : softmax_of(b, a);
  if (s.dropout > 0) weights = attention_dropped(b, a, in, weights, attrs);
  const Value mixed =
      b.emit("contract", {weights, a.v}, {{"map", std::string("bkgij,bjkd->bikgd")}});
  const Value out = b.emit("merge", {b.emit("merge", {mixed})});
  return {out, b.emit("merge", {log_sums})};
}

}  // namespace adjoint
