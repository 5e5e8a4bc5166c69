// out = softmax(q k^T / sqrt(size)) v for every head, causal, with several heads of q to one of k
// and v (grouped-query). q, k and v come as three objects or side by side in one, which is read in
// place. The scores are never whole; what is kept for the gradient is one number a row, the log of
// its sum.
//
// Options change the scores on their way to the softmax, in this order: the scale, the cap, what a
// distance adds (alibi, bias), what is not seen (causal, window, segments). Sinks take part in the
// softmax alone, and dropout in its weights. An option that changes nothing is not written.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

double AttentionShape::scale() const {
  return said_scale != 0 ? said_scale : 1 / std::sqrt(static_cast<double>(size));
}

double AttentionShape::slope(int64_t head) const {
  if (!alibi) return 0;
  int64_t power = 1;
  while (2 * power <= kv_heads * group) power *= 2;
  const auto of_power = [](int64_t n, int64_t i) {
    return std::exp2(-8.0 * static_cast<double>(i + 1) / static_cast<double>(n));
  };
  return head < power ? of_power(power, head) : of_power(2 * power, 2 * (head - power));
}

bool AttentionShape::is_plain() const {
  return !window && cap == 0 && !alibi && !bias && !sinks && !segments && dropout == 0;
}

double AttentionShape::pairs() const {
  const double n = static_cast<double>(length);
  const double seen = window ? static_cast<double>(std::min(window, length)) : n;
  // Of the n * n pairs, those whose distance is too large are two triangles, or one.
  const double hidden = (n - seen) * (n - seen + 1) / 2;
  return causal ? n * (n + 1) / 2 - hidden : n * n - 2 * hidden;
}

namespace {

bool says(const OpCall& call, std::string_view option) { return call.integer(option, 0) != 0; }

// The numbers that options are, checked.
void read_options(const OpCall& call, AttentionShape& shape) {
  shape.window = call.integer("window", 0);
  shape.said_scale = call.number("scale", 0);
  shape.cap = call.number("cap", 0);
  shape.alibi = says(call, "alibi");
  shape.sinks = says(call, "sinks");
  shape.segments = says(call, "segments");
  shape.dropout = call.number("dropout", 0);
  if (shape.window < 0) fail(call.op, ": the window must be 0 or more, found ", shape.window);
  if (!(shape.said_scale >= 0 && std::isfinite(shape.said_scale))) {
    fail(call.op, ": the scale must be 0 or more, found ", shape.said_scale);
  }
  if (!(shape.cap >= 0 && std::isfinite(shape.cap))) {
    fail(call.op, ": the cap must be 0 or more, found ", shape.cap);
  }
  if (!(shape.dropout >= 0 && shape.dropout < 1)) {
    fail(call.op, ": dropout must be in [0, 1), found ", shape.dropout);
  }
  if (shape.window >= shape.length) shape.window = 0;
}

// The operands of options, which come behind q, k and v.
void read_option_operands(const OpCall& call, size_t count, AttentionOperands& operands) {
  AttentionShape& s = operands.shape;
  const int64_t heads = s.kv_heads * s.group;
  size_t next = operands.rows();
  const auto take = [&](int& place, const char* what) -> const Type& {
    if (next >= count) fail(call.op, ": wants ", what, " behind q, k and v");
    place = static_cast<int>(next);
    return call.inputs[next++];
  };
  if (says(call, "bias")) {
    const Type& t = take(operands.bias, "the bias");
    if (t.rank() != 2 || t.dim(0) != heads || t.dtype != s.dtype) {
      fail(call.op, ": the bias must be ", name(s.dtype), "[heads=", heads, ", n] as q is, found ",
           to_string(t));
    }
    if (!s.causal) fail(call.op, ": a bias is by the distance to earlier keys, so wants causal");
    s.bias = t.dim(1);
  }
  if (s.sinks) {
    const Type& t = take(operands.sinks, "the sinks");
    if (t.rank() != 1 || t.dim(0) != heads || t.dtype != s.dtype) {
      fail(call.op, ": the sinks must be ", name(s.dtype), "[heads=", heads, "] as q is, found ",
           to_string(t));
    }
  }
  if (s.segments) {
    const Type& t = take(operands.segments, "the segments");
    if (t.rank() != 2 || t.dim(0) != s.samples || t.dim(1) != s.length || t.dtype != Dtype::kI32) {
      fail(call.op, ": the segments must be i32[", s.samples, ", ", s.length,
           "] beside this q, found ", to_string(t));
    }
  }
  if (s.dropout > 0) {
    const Type& t = take(operands.counter, "the random counter");
    if (!same_shape(t, random_counter_type()) || t.dtype != Dtype::kI64) {
      fail(call.op, ": dropout draws by ", to_string(random_counter_type()), ", found ",
           to_string(t));
    }
  }
  if (next != count) fail(call.op, ": found ", count - next, " operands that no option wants");
}

}  // namespace

AttentionOperands::AttentionOperands(const OpCall& call, size_t count) {
  const int64_t heads = call.integer("heads"), kv = call.integer("kv_heads", heads);
  size_t options = call.number("dropout", 0) > 0;
  for (const char* option : {"bias", "sinks", "segments"}) options += says(call, option);
  const size_t rows = count - std::min(count, options);
  if (rows != 1 && rows != 3) fail(call.op, ": wants q, k, v or one object that holds them");
  packed = rows == 1;
  for (size_t i = 0; i < rows; ++i) {
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
  if (!packed) {
    const Type &k = call.inputs[1], &v = call.inputs[2];
    const auto beside = [&](const Type& t) { return t.dim(0) == q.dim(0) && t.dim(1) == q.dim(1); };
    if (!beside(k) || !beside(v) || k.dim(2) != kv * shape.size) {
      fail(call.op, ": k and v must be [", q.dim(0), ", ", q.dim(1), ", ", kv * shape.size,
           "] beside this q, found ",
           shape_string(beside(k) && beside(v) ? k
                        : beside(k)            ? v
                                               : k));
    }
    if (v.dim(2) % kv) {
      fail(call.op, ": v's rows of ", v.dim(2), " do not split into ", kv, " kv heads");
    }
    shape.value_size = v.dim(2) / kv;
  }
  lse_axes = {q.axes[0], {"kv_heads", kv}, {"group", heads / kv}, q.axes[1]};
  read_options(call, shape);
  read_option_operands(call, count, *this);
}

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

// The slope of a head, in a body over [batch, kv, group, i, j]: AttentionShape::slope as algebra.
Expr slope_of(Body& body, const AttentionShape& s) {
  const double heads = static_cast<double>(s.kv_heads * s.group);
  const Expr head = index_along(body, 3) * static_cast<double>(s.group) + index_along(body, 2);
  const double power = std::exp2(std::floor(std::log2(heads)));
  const double each = -8 * std::log(2.0) / power;
  const Expr below = exp((head + 1.0) * each), above = exp((head - power + 0.5) * each);
  return select(less(head, constant(body, power)), below, above);
}

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
    x = x - slope_of(body, s) * max(distance, -distance);
  }
  if (s.bias) {
    a.distance = distances(b, s);
    x = x + input(body, static_cast<int>(read.size()));
    read.push_back(bias_of_pairs(b, s, in[operands.bias], a.distance));
  }
  const int segments = static_cast<int>(read.size());
  if (s.segments) {
    const auto [mine, theirs] = by_query_and_key(b, in[operands.segments]);
    read.insert(read.end(), {mine, theirs});
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

std::vector<std::string> attention_rows(const AttentionOperands& operands) {
  if (operands.packed) return {"bsP"};
  return {"bsQ", "bsK", operands.shape.value_size == operands.shape.size ? "bsK" : "bsV"};
}

std::string attention_result(const AttentionOperands& operands) {
  return operands.shape.value_size == operands.shape.size ? "bsQ" : "bsO";
}

IndexMap attention_letters(const AttentionOperands& operands) {
  const AttentionShape& s = operands.shape;
  IndexMap map = {.inputs = attention_rows(operands),
                  .outputs = {},
                  .whole = "sd",
                  .merged = {{'Q', {"kgd"}}, {'K', {"kd"}}, {'P', {"kgd", "kd", "kd"}}},
                  .counts = {{"heads", "kg"}, {"kv_heads", "k"}}};
  if (s.value_size != s.size) {
    map.whole += 'e';
    map.merged.insert(map.merged.end(), {{'V', {"ke"}}, {'O', {"kge"}}});
  }
  if (s.bias || s.sinks) map.merged.push_back({'H', {"kg"}});
  if (s.bias) map.whole += 'n';
  // A head's slope and its random numbers follow from its number among all heads.
  if (s.alibi || s.dropout > 0) map.whole += "kg";
  if (s.bias) map.inputs.emplace_back("Hn");
  if (s.sinks) map.inputs.emplace_back("H");
  if (s.segments) map.inputs.emplace_back("bs");
  if (s.dropout > 0) map.inputs.emplace_back(".");
  return map;
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
  Attrs attrs = {{"heads", heads}, {"kv_heads", kv}, {"causal", int64_t{call.flag("causal")}}};
  // What changes nothing is not said: a number of the model that is 0 costs nothing.
  const Type& q = call.type("q");
  const int64_t window = call.size("window");
  if (window && !(q.rank() == 3 && window >= q.dim(1))) attrs["window"] = window;
  for (const char* option : {"scale", "cap", "dropout"}) {
    if (const double number = call.number(option); number != 0) attrs[option] = number;
  }
  if (call.flag("alibi")) attrs["alibi"] = int64_t{1};
  for (const char* option : {"bias", "sinks", "segments"}) {
    if (!call.has(option)) continue;
    attrs[option] = int64_t{1};
    operands.push_back(call.tensor(option));
  }
  if (attrs.count("dropout")) {
    attrs["key"] = call.path;
    operands.push_back(call.builder.control(kRandomCounter, random_counter_type()));
  }
  return {call.builder.emit_all("attention", operands, std::move(attrs))[0]};
}

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

std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  const AttentionScores a = attention_scores(b, in, attrs);
  const AttentionShape& s = a.operands.shape;
  auto [weights, log_sums] = s.is_plain() ? plain_softmax_of(b, a) : softmax_of(b, a);
  if (s.dropout > 0) weights = attention_dropped(b, a, in, weights, attrs);
  const Value mixed =
      b.emit("contract", {weights, a.v}, {{"map", std::string("bkgij,bjkd->bikgd")}});
  const Value out = b.emit("merge", {b.emit("merge", {mixed})});
  return {out, b.emit("merge", {log_sums})};
}

std::vector<Type> infer(const OpCall& call) {
  const AttentionOperands operands(call, call.inputs.size());
  const AttentionShape& s = operands.shape;
  Type out = call.inputs[0];
  if (operands.packed || s.value_size != s.size) {
    out.axes[2] = {"heads*size", s.kv_heads * s.group * s.value_size};
  }
  return {out, {s.wide(), operands.lse_axes}};
}

void grad(GradCall& g) {
  const AttentionOperands at(g.call, g.inputs.size());
  std::vector<Value> operands(g.inputs.begin(), g.inputs.end());
  operands.insert(operands.end(), {g.outputs[0], g.outputs[1], g.dout()});
  const std::vector<Value> made = g.builder.emit_all("attention_grad", operands, g.call.attrs);
  size_t next = 0;
  for (; next < at.rows(); ++next) g.input_grads[next] = made[next];
  if (at.bias >= 0) g.input_grads[at.bias] = made[next++];
  if (at.sinks >= 0) g.input_grads[at.sinks] = made[next++];
}

// Takes dropout out of a call.
void calm(Morphism& m) {
  m.inputs.pop_back();  // the counter is the last operand
  m.attrs.erase("dropout");
  m.attrs.erase("key");
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

// A call with options: the operands that they want are added, with what fills them.
struct Options {
  std::vector<Type> rows;
  int64_t heads = 1, kv = 1, causal = 1;
  Attrs said = {};
  int64_t bias = 0;
  bool sinks = false, segments = false;
};

Sample with_options(const Options& o) {
  Sample sample{.inputs = o.rows, .attrs = o.said, .fills = {}, .ids_below = 2};
  sample.fills.assign(o.rows.size(), Sample::Fill::kNormal);
  sample.attrs.insert({{"heads", o.heads}, {"kv_heads", o.kv}, {"causal", o.causal}});
  const auto add = [&](const char* option, Type type, Sample::Fill fill) {
    if (*option) sample.attrs[option] = int64_t{1};
    sample.inputs.push_back(std::move(type));
    sample.fills.push_back(fill);
  };
  const Type& q = o.rows[0];
  if (o.bias) add("bias", of({o.heads, o.bias}), Sample::Fill::kNormal);
  if (o.sinks) add("sinks", of({o.heads}), Sample::Fill::kNormal);
  if (o.segments) add("segments", of({q.dim(0), q.dim(1)}, Dtype::kI32), Sample::Fill::kIds);
  if (o.said.count("dropout")) {
    sample.attrs["key"] = std::string("block[0].attention#1");
    add("", random_counter_type(), Sample::Fill::kCounter);
  }
  return sample;
}

// Each option alone, and combinations in which each stands beside each other one.
std::vector<Sample> option_samples() {
  const auto apart = [](int64_t b, int64_t s, int64_t heads, int64_t kv, int64_t d, int64_t e) {
    return std::vector<Type>{of({b, s, heads * d}), of({b, s, kv * d}), of({b, s, kv * e})};
  };
  const Attr one = int64_t{1};
  const Attrs all_numbers = {
      {"window", int64_t{4}}, {"scale", 0.7}, {"cap", 1.5}, {"alibi", one}, {"dropout", 0.25}};
  return {
      with_options(
          {.rows = apart(2, 7, 2, 2, 2, 2), .heads = 2, .kv = 2, .said = {{"window", int64_t{3}}}}),
      with_options({.rows = apart(1, 7, 2, 1, 2, 2),
                    .heads = 2,
                    .causal = 0,
                    .said = {{"window", int64_t{2}}}}),
      with_options({.rows = {of({2, 5, 12})}, .heads = 2, .said = {{"scale", 0.0625}}}),
      with_options({.rows = {of({2, 5, 12})}, .heads = 2, .kv = 2, .said = {{"cap", 0.8}}}),
      with_options(
          {.rows = apart(1, 5, 6, 3, 2, 2), .heads = 6, .kv = 3, .said = {{"alibi", one}}}),
      with_options({.rows = apart(1, 6, 2, 2, 3, 3),
                    .heads = 2,
                    .kv = 2,
                    .causal = 0,
                    .said = {{"alibi", one}}}),
      with_options({.rows = apart(2, 6, 4, 2, 2, 2), .heads = 4, .kv = 2, .bias = 3}),
      with_options({.rows = apart(1, 4, 2, 2, 2, 2), .heads = 2, .kv = 2, .bias = 9}),
      with_options({.rows = apart(2, 5, 4, 2, 2, 2), .heads = 4, .kv = 2, .sinks = true}),
      with_options({.rows = {of({1, 5, 16})}, .heads = 4, .kv = 2, .causal = 0, .sinks = true}),
      with_options({.rows = apart(2, 9, 2, 1, 2, 2), .heads = 2, .segments = true}),
      with_options({.rows = apart(2, 5, 2, 1, 2, 2), .heads = 2, .causal = 0, .segments = true}),
      with_options(
          {.rows = apart(2, 7, 4, 2, 2, 2), .heads = 4, .kv = 2, .said = {{"dropout", 0.25}}}),
      with_options({.rows = apart(2, 5, 4, 2, 6, 4), .heads = 4, .kv = 2}),  // latent
      with_options({.rows = apart(1, 5, 2, 2, 2, 5), .heads = 2, .kv = 2, .causal = 0}),
      with_options({.rows = {of({2, 6, 16})},
                    .heads = 4,
                    .kv = 2,
                    .said = all_numbers,
                    .bias = 4,
                    .sinks = true,
                    .segments = true}),
      with_options({.rows = apart(2, 6, 3, 3, 3, 2),
                    .heads = 3,
                    .kv = 3,
                    .said = all_numbers,
                    .bias = 2,
                    .sinks = true,
                    .segments = true}),
      with_options({.rows = apart(1, 6, 2, 2, 2, 3),
                    .heads = 2,
                    .kv = 2,
                    .causal = 0,
                    .said = all_numbers,
                    .sinks = true,
                    .segments = true}),
      // Several blocks of every kernel, of which a window leaves few.
      with_options({.rows = apart(1, 150, 2, 1, 17, 9),
                    .heads = 2,
                    .said = all_numbers,
                    .bias = 40,
                    .sinks = true,
                    .segments = true}),
      with_options({.rows = apart(1, 203, 1, 1, 16, 16), .said = {{"window", int64_t{30}}}}),
      with_options({.rows = apart(1, 203, 1, 1, 16, 16),
                    .causal = 0,
                    .said = {{"window", int64_t{30}}, {"cap", 2.0}}}),
  };
}

std::vector<Sample> all_samples() {
  std::vector<Sample> all = samples();
  for (Sample& sample : option_samples()) all.push_back(std::move(sample));
  return all;
}

std::vector<Sample> refused() {
  const auto with = [](std::vector<Type> inputs, int64_t heads, int64_t kv) {
    return Sample{.inputs = std::move(inputs), .attrs = {{"heads", heads}, {"kv_heads", kv}}};
  };
  return {with({of({2, 5, 4}), of({2, 5, 4}), of({2, 5, 4})}, 3, 3),
          with({of({2, 5, 6}), of({2, 5, 4}), of({2, 5, 4})}, 3, 2),
          with({of({2, 5, 4}), of({2, 4, 4}), of({2, 4, 4})}, 2, 2),
          with({of({2, 5, 4}), of({2, 5, 4})}, 2, 2),
          with({of({5, 6})}, 2, 2),
          with({of({2, 5, 4}), of({2, 5, 4}), of({2, 5, 5})}, 2, 2)};
}

// Options that say what cannot be, each in an otherwise good call.
std::vector<Sample> refused_options() {
  const auto with = [](std::vector<Type> more, Attrs said) {
    Sample sample{.inputs = {of({2, 5, 12})}, .attrs = std::move(said)};
    sample.inputs.insert(sample.inputs.end(), more.begin(), more.end());
    sample.attrs["heads"] = int64_t{2};
    return sample;
  };
  const Attr one = int64_t{1}, none = int64_t{0};
  const Type counter = random_counter_type();
  return {with({}, {{"window", int64_t{-1}}}),
          with({}, {{"scale", -0.5}}),
          with({}, {{"cap", -1.0}}),
          with({counter}, {{"dropout", 1.0}}),
          with({counter}, {{"dropout", -0.1}}),
          with({}, {{"dropout", 0.1}}),
          with({of({3}, Dtype::kI32)}, {{"dropout", 0.1}}),
          with({}, {{"bias", one}}),
          with({of({2})}, {{"bias", one}}),
          with({of({3, 4})}, {{"bias", one}}),
          with({of({2, 4}, Dtype::kI32)}, {{"bias", one}}),
          with({of({2, 4})}, {{"bias", one}, {"causal", none}}),
          with({of({3})}, {{"sinks", one}}),
          with({of({2, 1})}, {{"sinks", one}}),
          with({of({2, 5})}, {{"segments", one}}),
          with({of({2, 4}, Dtype::kI32)}, {{"segments", one}}),
          with({of({5}, Dtype::kI32)}, {{"segments", one}})};
}

std::vector<Sample> all_refused() {
  std::vector<Sample> all = refused();
  for (Sample& sample : refused_options()) all.push_back(std::move(sample));
  return all;
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
               {"kv_heads", Param::Kind::kSize, "none"},
               {"window", Param::Kind::kSize, "0"},
               {"scale", Param::Kind::kNumber, "0"},
               {"cap", Param::Kind::kNumber, "0"},
               {"alibi", Param::Kind::kFlag, "no"},
               {"bias", Param::Kind::kMaybeTensor, "none"},
               {"sinks", Param::Kind::kMaybeTensor, "none"},
               {"segments", Param::Kind::kMaybeTensor, "none"},
               {"dropout", Param::Kind::kNumber, "0"}},
    .surface = surface,
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const AttentionOperands operands(call, call.inputs.size());
          IndexMap map = attention_letters(operands);
          map.outputs = {attention_result(operands), "bkgs"};
          return map;
        },
    .flops =
        [](const OpCall& call) {
          // Two products.
          const AttentionShape s = AttentionOperands(call, call.inputs.size()).shape;
          const int64_t width = s.samples * s.kv_heads * s.group * (s.size + s.value_size);
          const double count = 2.0 * static_cast<double>(width) * s.pairs();
          return static_cast<int64_t>(std::min(count, 9e18));
        },
    .grad = grad,
    .effects =
        [](const OpCall& call) {
          return call.number("dropout", 0) > 0 ? Effect::kRandom : Effect::kPure;
        },
    .calm = calm,
    .output_names = {"lse"},
    .one_dtype = true,
    .meaning = meaning,
    .cost = CostClass::kAttention,
    .attends = true,
    .samples = all_samples,
    .refused = all_refused,
};

}  // namespace adjoint
