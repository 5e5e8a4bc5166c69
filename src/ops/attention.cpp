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

#include "base/counts.h"
#include "base/error.h"
#include "ops/cached_attention.h"
#include "ops/surface.h"

namespace adjoint {

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
          return static_cast<int64_t>(std::min(count, double{kMostCounted}));
        },
    .grad = grad,
    .effects =
        [](const OpCall& call) {
          return call.number("dropout", 0) > 0 ? Effect::kRandom : Effect::kPure;
        },
    .calm = calm,
    .output_names = {"lse"},
    .one_dtype = true,
    .meaning = attention_meaning,
    .carry = carry_attention,
    .cost = CostClass::kAttention,
    .attends = true,
    .samples = attention_samples,
    .refused = attention_refused,
};

}  // namespace adjoint
