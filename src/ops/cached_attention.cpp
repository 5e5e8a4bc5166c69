// out[b, i] = attention of the query at position origin[b] + i to the keys up to that position.
// Keys and values have a row for every position that there may ever be; those behind the query are
// not looked at, so they need not be there yet. Queries past the last position see all of them.
// With `ring` there are only as many rows as a window needs, and position p is row p mod rows.
// Options are attention's, but for dropout: nothing is trained this way.
#include "ops/cached_attention.h"

#include <algorithm>

#include "base/counts.h"
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

// The same attention with a query at every position.
OpCall call_of_all(const OpCall& call) {
  OpCall all = call;
  if (call.inputs.size() < 4) fail(call.op, ": wants q, keys, values and an origin");
  const Type &q = call.inputs[0], &keys = call.inputs[1];
  if (q.rank() != 3 || keys.rank() != 3 || q.dim(1) > keys.dim(1)) {
    fail(call.op, ": wants q[batch, some positions, heads*size] and keys[batch, positions, ",
         "kv_heads*size], found ", shape_string(q), " and ", shape_string(keys));
  }
  all.inputs[0].axes[1] = keys.axes[1];
  all.inputs.erase(all.inputs.begin() + CachedAttentionOperands::kOrigin);
  return all;
}

}  // namespace

CachedAttentionOperands::CachedAttentionOperands(const OpCall& call)
    : all(call_of_all(call), call.inputs.size() - 1),
      queries(call.inputs[0].dim(1)),
      ring(call.integer("ring", 0) != 0) {
  const Type& origin = call.inputs[kOrigin];
  if (origin.rank() != 1 || origin.dtype != Dtype::kI32 || origin.dim(0) != all.shape.samples) {
    fail(call.op, ": queries begin at i32[", all.shape.samples, "], found ", to_string(origin));
  }
  if (all.packed) fail(call.op, ": wants q, keys and values as three objects");
  if (!all.shape.causal) fail(call.op, ": no query sees a later key, so wants causal");
  if (all.shape.dropout > 0) fail(call.op, ": has no dropout");
  if (!ring) return;
  // As many rows as the window has are no reason to forget it: they are not all positions.
  all.shape.window = call.integer("window", 0);
  if (all.shape.window == 0 || all.shape.length < all.shape.window + queries - 1) {
    fail(call.op, ": a ring holds the window of every query, ", all.shape.window, " + ",
         queries - 1, " rows of a window, found ", all.shape.length, " rows");
  }
  if (all.shape.segments) fail(call.op, ": a ring has no segments");
}

namespace {

Value in_two(Builder& b, Value x, int64_t parts) {
  return b.emit("split", {x}, {{"parts", parts}});
}

// [n, ...] -> [n, ..., 1, 1] of this rank
Value widened(Builder& b, Value x, int rank) {
  while (b.type(x).rank() < rank) x = in_two(b, x, b.type(x).dim(-1));
  return x;
}

Value map_of(Builder& b, const Body& body, std::vector<Value> operands) {
  return b.emit("map", std::move(operands), {{"body", print(body)}});
}

// A query and a key, in a body whose axes of them are these from the end; `origin` is the operand
// that says where queries begin.
struct CachedPair {
  Expr query, distance;  // the query's position, and how far before it the key stands

  CachedPair(Body& body, const CachedAttentionOperands& operands, int query_axis, int key_axis,
             int origin)
      : query(index_along(body, query_axis) + input(body, origin)), distance(query) {
    const int64_t rows = operands.all.shape.length;
    if (!operands.ring) query = min(query, constant(body, static_cast<double>(rows - 1)));
    distance = query - index_along(body, key_axis);
    if (!operands.ring) return;
    // The remainder: of a quotient whose fraction is never a half, the nearest whole is the floor.
    const auto n = static_cast<double>(rows);
    distance = distance - nearest_whole((distance + 0.5) / n - 0.5) * n;
  }

  Expr hidden(const AttentionShape& s, bool ring) const {
    Body& body = *query.body;
    const Expr zero = constant(body, 0);
    // No key of a ring stands behind its query, but some would stand before the first.
    Expr hidden = ring ? less(query, distance) : less(distance, zero);
    if (s.window) {
      hidden = max(hidden, less(constant(body, static_cast<double>(s.window - 1)), distance));
    }
    return hidden;
  }
};

// The bias of every pair, [heads, n] -> [batch, kv, group, i, j].
Value bias_of_cached_pairs(Builder& b, const CachedAttentionOperands& operands, Value table,
                           Value origin) {
  const AttentionShape& s = operands.all.shape;
  const int64_t queries = operands.queries;
  Body body;
  const Expr zero = constant(body, 0), last = constant(body, static_cast<double>(s.bias - 1));
  const Expr entry = min(max(CachedPair(body, operands, 2, 1, 0).distance, zero), last);
  body.outputs = {{.node = equal(entry, index_along(body, 0)).node, .dtype = s.wide()}};
  const Value chosen =
      b.emit("map", {widened(b, origin, 4)},
             {{"body", print(body)},
              {"shape", std::vector<int64_t>{s.samples, queries, s.length, s.bias}}});
  const Value turned = b.emit("contract", {table, attention_identity(b, s.bias, s.dtype)},
                              {{"map", std::string("hn,mn->mh")}});
  return b.emit("contract", {in_two(b, turned, s.kv_heads), chosen},
                {{"map", std::string("nkg,bijn->bkgij")}});
}

std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  OpCall call{.op = "cached_attention", .inputs = {}, .attrs = attrs};
  for (const Value v : in) call.inputs.push_back(b.type(v));
  const CachedAttentionOperands operands(call);
  const AttentionShape& s = operands.all.shape;
  const auto option = [&](int place) { return in[CachedAttentionOperands::place(place)]; };
  const Value origin = in[CachedAttentionOperands::kOrigin];
  const Value q = in_two(b, in_two(b, in[0], s.kv_heads), s.group);
  const Value k = in_two(b, in[1], s.kv_heads), v = in_two(b, in[2], s.kv_heads);
  const Value products = b.emit("contract", {q, k}, {{"map", std::string("bikgd,bjkd->bkgij")}});
  std::vector<Value> read = {products, widened(b, origin, 5)};

  Body body;
  Expr x = input(body, 0) * s.scale();
  const CachedPair pair(body, operands, 1, 0, 1);
  if (s.cap > 0) x = tanh(x / s.cap) * s.cap;
  if (s.alibi) x = x - alibi_slope(body, s) * max(pair.distance, -pair.distance);
  if (s.bias) {
    x = x + input(body, static_cast<int>(read.size()));
    read.push_back(bias_of_cached_pairs(b, operands, option(operands.all.bias), origin));
  }
  Expr hidden = pair.hidden(s, operands.ring);
  if (s.segments) {
    const Value theirs = option(operands.all.segments);
    const Value mine = b.emit("rows_at", {theirs, origin}, {{"size", operands.queries}});
    const int at = static_cast<int>(read.size());
    const auto spread = [&](Value ids) { return in_two(b, in_two(b, ids, 1), 1); };
    read.insert(read.end(),
                {in_two(b, spread(mine), operands.queries), in_two(b, spread(theirs), 1)});
    hidden = max(hidden, 1.0 - equal(input(body, at), input(body, at + 1)));
  }
  body.outputs = {{.node = select(hidden, constant(body, -1e30), x).node}};
  std::vector<Value> weighed = {map_of(b, body, read)};

  Body softmax;
  const Expr logit = input(softmax, 0);
  Expr highest = row_max(logit);
  if (s.sinks) highest = max(highest, input(softmax, 1));
  Expr sum = row_sum(exp(logit - highest));
  if (s.sinks) {
    sum = sum + exp(input(softmax, 1) - highest);
    weighed.push_back(widened(b, in_two(b, option(operands.all.sinks), s.kv_heads), 4));
  }
  softmax.outputs = {{.node = (exp(logit - highest) / sum).node}};
  const Value weights = map_of(b, softmax, weighed);
  const Value mixed = b.emit("contract", {weights, v}, {{"map", std::string("bkgij,bjkd->bikgd")}});
  return {b.emit("merge", {b.emit("merge", {mixed})})};
}

std::vector<Type> infer(const OpCall& call) {
  const CachedAttentionOperands operands(call);
  const AttentionShape& s = operands.all.shape;
  Type out = call.inputs[0];
  if (s.value_size != s.size) {
    out.axes[2] = {"heads*size", s.kv_heads * s.group * s.value_size};
  }
  return {out};
}

// Queries are a letter of their own, t: their positions are counted from the origin.
IndexMap index_map(const OpCall& call) {
  const CachedAttentionOperands operands(call);
  IndexMap map = attention_letters(operands.all);
  map.inputs[0] = "btQ";
  map.inputs.insert(map.inputs.begin() + CachedAttentionOperands::kOrigin, "b");
  map.outputs = {attention_result(operands.all)};
  map.outputs[0][1] = 't';
  map.whole += 't';
  return map;
}

std::vector<Sample> samples() {
  struct Options {
    int64_t batch, queries, keys, heads, kv, size, value_size;
    Attrs said = {};
    int64_t bias = 0;
    bool sinks = false, segments = false;
    int64_t begin_below = 3;
  };
  const auto with = [](const Options& o) {
    using Fill = Sample::Fill;
    Sample sample{
        .inputs = {of({o.batch, o.queries, o.heads * o.size}), of({o.batch, o.keys, o.kv * o.size}),
                   of({o.batch, o.keys, o.kv * o.value_size}), of({o.batch}, Dtype::kI32)},
        .attrs = o.said,
        .fills = {Fill::kNormal, Fill::kNormal, Fill::kNormal, Fill::kIds},
        .ids_below = o.begin_below};
    sample.attrs["heads"] = o.heads;
    sample.attrs["kv_heads"] = o.kv;
    if (o.bias) {
      sample.attrs["bias"] = int64_t{1};
      sample.inputs.push_back(of({o.heads, o.bias}));
      sample.fills.push_back(Fill::kNormal);
    }
    if (o.sinks) {
      sample.attrs["sinks"] = int64_t{1};
      sample.inputs.push_back(of({o.heads}));
      sample.fills.push_back(Fill::kNormal);
    }
    if (o.segments) {
      sample.attrs["segments"] = int64_t{1};
      sample.inputs.push_back(of({o.batch, o.keys}, Dtype::kI32));
      sample.fills.push_back(Fill::kIds);
    }
    return sample;
  };
  const Attrs numbers = {{"scale", 0.5}, {"cap", 2.0}, {"window", int64_t{3}}};
  const auto ring = [](int64_t window) { return Attrs{{"window", window}, {"ring", int64_t{1}}}; };
  Attrs ring_with_all = numbers;
  ring_with_all["ring"] = ring_with_all["alibi"] = int64_t{1};
  return {
      with({3, 2, 6, 2, 2, 2, 2}),
      with({1, 5, 5, 4, 2, 3, 3}),  // grouped, and some queries past the last key
      with({2, 1, 9, 2, 1, 4, 3}),  // a token at a time
      with({2, 3, 7, 3, 1, 2, 2, {{"alibi", int64_t{1}}}}),
      with({2, 3, 7, 2, 2, 2, 3, numbers, 2, true, true}),
      with({2, 2, 8, 2, 1, 2, 2, {}, 5, false, false, 6}),
      // Several blocks of every kernel, of queries and of keys.
      with({2, 60, 203, 2, 1, 17, 9, {}, 0, false, false, 130}),
      with({1, 1, 203, 2, 1, 16, 16, {{"window", int64_t{30}}}, 40, true, true, 150}),
      // Rings: before the first wrap and far behind it, with rows to spare and without.
      with({4, 1, 3, 2, 1, 4, 3, ring(3), 0, false, false, 17}),
      with({4, 3, 9, 2, 2, 2, 2, ring(4), 0, false, false, 40}),
      with({3, 2, 4, 2, 1, 2, 2, ring_with_all, 2, true, false, 11}),
      with({3, 60, 203, 2, 1, 17, 9, ring(130), 0, false, false, 1000}),
  };
}

std::vector<Sample> refused() {
  const auto with = [](std::vector<Type> inputs, Attrs attrs = {}) {
    Sample sample{.inputs = std::move(inputs), .attrs = std::move(attrs)};
    sample.attrs["heads"] = sample.attrs["kv_heads"] = int64_t{2};
    return sample;
  };
  const Type origin = of({2}, Dtype::kI32), q = of({2, 3, 4}), keys = of({2, 5, 4});
  return {with({q, keys, keys}),
          with({of({2, 6, 4}), keys, keys, origin}),
          with({q, keys, of({2, 4, 4}), origin}),
          with({q, keys, keys, of({2})}),
          with({q, keys, keys, of({3}, Dtype::kI32)}),
          with({q, keys, keys, origin}, {{"causal", int64_t{0}}}),
          with({q, keys, keys, origin, random_counter_type()}, {{"dropout", 0.5}}),
          with({q, keys, keys, origin, of({2, 3}, Dtype::kI32)}, {{"segments", int64_t{1}}}),
          with({q, keys, keys, origin}, {{"ring", int64_t{1}}}),
          with({q, keys, keys, origin}, {{"ring", int64_t{1}}, {"window", int64_t{4}}}),
          with({q, keys, keys, origin, of({2, 5}, Dtype::kI32)},
               {{"ring", int64_t{1}}, {"window", int64_t{2}}, {"segments", int64_t{1}}}),
          with({q, keys, keys, origin, of({3})}, {{"sinks", int64_t{1}}})};
}

}  // namespace

std::vector<Value> carry_attention(CarryCall& carry) {
  Builder& b = carry.builder;
  const AttentionOperands operands(carry.call, carry.call.inputs.size());
  const AttentionShape& s = operands.shape;
  if (!s.causal) fail("attention: its queries see later keys, too");
  CHECK(s.dropout == 0, "nothing is random where nothing is trained");
  Value q = carry.inputs[0], k = q, v = q;
  if (operands.packed) {
    const int64_t kv_width = s.kv_heads * s.size, q_width = kv_width * s.group;
    const auto part = [&](int64_t start, int64_t size) {
      return b.emit("slice", {carry.inputs[0]}, {{"start", start}, {"size", size}});
    };
    q = part(0, q_width), k = part(q_width, kv_width), v = part(q_width + kv_width, kv_width);
  } else {
    k = carry.inputs[1], v = carry.inputs[2];
  }
  // A step of several positions needs the window of its first one, and may write positions that do
  // not count yet behind its last; none of these may take the row of one that is still seen.
  const int64_t rows = s.window + carry.most - 1;
  const bool ring = s.window > 0 && rows < carry.context && !s.segments;
  const CarryCall::Kept as{.ring = ring ? rows : 0};
  std::vector<Value> read = {q, carry.keep(k, "keys", as), carry.keep(v, "values", as),
                             carry.origin};
  if (operands.bias >= 0) read.push_back(carry.inputs[operands.bias]);
  if (operands.sinks >= 0) read.push_back(carry.inputs[operands.sinks]);
  if (operands.segments >= 0) {
    read.push_back(carry.keep(carry.inputs[operands.segments], "segments", {}));
  }
  Attrs attrs = carry.call.attrs;
  if (ring) attrs["ring"] = int64_t{1};
  return {b.emit("cached_attention", read, std::move(attrs))};
}

extern const OpDef op_cached_attention = {
    .name = "cached_attention",
    .summary = "attention of a few positions from an origin on to keys and values that are kept",
    .infer = infer,
    .index_map = index_map,
    .flops =
        [](const OpCall& call) {
          // How many keys a query sees is data; as many as there may be.
          const CachedAttentionOperands operands(call);
          const AttentionShape& s = operands.all.shape;
          return product_of({2, s.samples, s.kv_heads, s.group, s.size + s.value_size,
                             operands.queries, s.window ? s.window : s.length});
        },
    .differentiable = false,
    .one_dtype = true,
    .meaning = meaning,
    .cost = CostClass::kAttention,
    .attends = true,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
