// y[..., o] = sum over i of x[..., i] * w[o, i] (+ b[o]): a linear map by a parameter.
#include "base/counts.h"
#include "base/error.h"
#include "ops/builder.h"
#include "ops/product_letters.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

std::vector<Value> surface(SurfaceCall& call) {
  if (call.type("x").rank() < 1) fail("linear: x must have an axis, found a single number");
  const Axis in = call.type("x").axes.back(), out = call.axis("out");
  const bool own = !call.has("weight");
  if (!own && (call.type("weight").rank() != 2 || call.type("weight").dim(0) != out.size)) {
    fail("linear: the weight ", shape_string(call.type("weight")), " does not give ", out.name, "=",
         out.size, " results");
  }
  const Value weight =
      own ? call.parameter("weight", {out, in}, call.init("init")) : call.tensor("weight");
  std::vector<Value> operands = {call.tensor("x"), weight};
  if (call.flag("bias")) operands.push_back(call.parameter("bias", {out}, {}));
  return call.builder.emit_all("linear", operands);
}

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() < 2 || call.inputs.size() > 3) {
    fail("linear: wants x, weight and maybe bias, found ", call.inputs.size(), " operands");
  }
  const Type &x = call.inputs[0], &w = call.inputs[1];
  if (x.rank() < 1 || x.rank() > 8 || w.rank() != 2 || w.dim(1) != x.dim(-1)) {
    fail("linear: the weight ", shape_string(w), " does not fit x ", shape_string(x),
         ": its columns must be as many as a row of x is long");
  }
  if (call.inputs.size() == 3 &&
      (call.inputs[2].rank() != 1 || call.inputs[2].dim(0) != w.dim(0))) {
    fail("linear: the bias ", shape_string(call.inputs[2]), " does not fit the weight ",
         shape_string(w));
  }
  for (const Type& t : call.inputs) {
    if (t.dtype != x.dtype || !is_float(t.dtype)) {
      fail("linear: operands have one floating dtype, found ", name(t.dtype), " beside ",
           name(x.dtype));
    }
  }
  Type y = x;
  y.axes.back() = w.axes[0];
  return {y};
}

void grad(GradCall& g) {
  const std::string in = leading_letters_of(g.call.inputs[0]);
  const Value dy = g.dout();
  if (g.call.inputs.size() > 2 && g.wants[2]) {
    Body sum;
    sum.outputs = {{.node = input(sum, 0).node, .summed_axes = g.call.inputs[0].rank() - 1}};
    g.input_grads[2] = g.builder.emit("map", {dy}, {{"body", print(sum)}});
  }
  // The weight's gradient before x's: it is the last reader of x.
  if (g.wants[1]) {
    g.input_grads[1] =
        g.builder.emit("contract", {dy, g.inputs[0]}, {{"map", in + "o," + in + "i->oi"}});
  }
  if (g.wants[0]) {
    g.input_grads[0] =
        g.builder.emit("contract", {dy, g.inputs[1]}, {{"map", in + "o,oi->" + in + "i"}});
  }
}

std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs&) {
  const Value y = b.emit("contract", {in[0], in[1]}, {{"map", linear_map(b.type(in[0]))}});
  return {in.size() > 2 ? b.emit("add", {y, in[2]}) : y};
}

std::vector<Sample> samples() {
  return {{.inputs = {of({3, 5}), of({7, 5})}},
          {.inputs = {of({2, 3, 5}), of({7, 5}), of({7})}},
          {.inputs = {of({1, 1, 1}), of({1, 1}), of({1})}},
          {.inputs = {of({2, 33, 17}), of({65, 17}), of({65})}},
          {.inputs = {of({4}), of({3, 4})}}};
}

std::vector<Sample> refused() {
  return {{.inputs = {of({3, 5}), of({7, 6})}},
          {.inputs = {of({3, 5}), of({7, 5}), of({5})}},
          {.inputs = {of({3, 5}), of({7, 5}, Dtype::kBF16)}},
          {.inputs = {of({3, 5})}}};
}

}  // namespace

extern const OpDef op_linear = {
    .name = "linear",
    .summary = "a linear map of the last axis by a weight, with a bias unless bias=no",
    .params = {{"x"},
               {"out", Param::Kind::kSize},
               {"bias", Param::Kind::kFlag, "yes"},
               {"init", Param::Kind::kInit, "normal(0.02)"},
               {"weight", Param::Kind::kMaybeTensor, "own"}},
    .surface = surface,
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string in = leading_letters_of(call.inputs[0]);
          IndexMap map{{in + "i", "oi"}, {in + "o"}};
          if (call.inputs.size() > 2) {
            // The bias must be added once, so nothing may be summed in pieces beside it.
            map.inputs.push_back("o");
            map.whole = "i";
          }
          return map;
        },
    .flops =
        [](const OpCall& call) {
          return product_of({2, call.inputs[0].num_elements(), call.inputs[1].dim(0)});
        },
    .grad = grad,
    .one_dtype = true,
    .multiplies = true,
    .meaning = meaning,
    .linear =
        [](const OpCall& call) { return call.inputs.size() == 2 ? Linear::kEach : Linear::kNo; },
    .cost = CostClass::kProducts,
    .weight = 1,
    .rounds_operands = true,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
