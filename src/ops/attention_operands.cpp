// How a call of attention is read: which operand is what, what its options say, and which letters
// the axes of its operands are. What cannot be is refused here.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/attention.h"

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
    const std::string kinds =
        packed ? join_parts(", which with ", kv, " of k and ", kv, " of v are ", parts) : "";
    fail(call.op, ": a row of ", q.axes[2].name, "=", q.dim(2), " does not split into ", heads,
         packed ? " heads of q" : " heads", kinds);
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
                  .counts = {{"heads", "kg"}, {"kv_heads", "k"}},
                  .sizes = {{'k', s.kv_heads}, {'g', s.group}, {'d', s.size}, {'e', s.value_size}}};
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

}  // namespace adjoint
