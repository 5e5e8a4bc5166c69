// y[..., j, :] = weight[choice[..., j]] x[..., (j,) :] (+ bias[choice[..., j]]): a linear map whose
// matrix is chosen per row, as embed chooses a row of a table. Objects stay in the order of tokens;
// that kernels sort rows by their experts is nobody's business but theirs. Every row is multiplied
// by the one matrix that it chose, however many rows choose the same.
//
// With `sum`, results are summed over the choices of a token; with `transposed`, the matrix is read
// transposed. So the gradient by x is the same op: x without an axis of choices has a gradient that
// is summed over them. Ids outside of the experts are read as the nearest, as embed reads them.
#include "ops/expert_linear.h"

#include "base/counts.h"
#include "base/error.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

bool has_row_per_choice(const OpCall& call, int operand, const Type& choice) {
  const Type& x = call.inputs[operand];
  const bool each = x.rank() == choice.rank() + 1;
  bool fits = is_float(x.dtype) && choice.dtype == Dtype::kI32 && choice.rank() >= 1 &&
              choice.rank() <= 7 && (each || x.rank() == choice.rank());
  for (int i = 0; fits && i + 1 < x.rank(); ++i) fits = x.dim(i) == choice.dim(i);
  if (!fits) {
    fail(call.op, ": the choice ", to_string(choice), " does not fit ", to_string(x),
         ": i32 ids [..., k] are wanted for rows [..., width] or [..., k, width]");
  }
  return each;
}

ExpertLinearShape expert_linear_shape(const OpCall& call) {
  const Type &x = call.inputs[0], &w = call.inputs[1], &choice = call.inputs[2];
  ExpertLinearShape s;
  s.chosen = choice.dim(-1), s.experts = w.dim(0);
  s.tokens = s.chosen ? choice.num_elements() / s.chosen : 0;
  s.transposed = call.integer("transposed", 0) != 0;
  s.sum = call.integer("sum", 0) != 0;
  s.in = w.dim(s.transposed ? 1 : 2), s.out = w.dim(s.transposed ? 2 : 1);
  s.x_each = x.rank() == choice.rank() + 1;
  s.bias = call.inputs.size() > 3;
  return s;
}

namespace {

std::vector<Value> surface(SurfaceCall& call) {
  if (call.type("x").rank() < 1) fail("expert_linear: x must have an axis, found a single number");
  const Axis in = call.type("x").axes.back(), out = call.axis("out"),
             experts = call.axis("experts");
  std::vector<Value> operands = {call.tensor("x"),
                                 call.parameter("weight", {experts, out, in}, call.init("init")),
                                 call.tensor("choice")};
  if (call.flag("bias")) operands.push_back(call.parameter("bias", {experts, out}, {}));
  Attrs attrs;
  if (call.flag("sum")) attrs["sum"] = int64_t{1};
  return call.builder.emit_all("expert_linear", operands, std::move(attrs));
}

std::vector<Type> infer_expert_linear(const OpCall& call) {
  if (call.inputs.size() != 3 && call.inputs.size() != 4) {
    fail("expert_linear: wants x, weight, choice and maybe bias, found ", call.inputs.size(),
         " operands");
  }
  const Type &x = call.inputs[0], &w = call.inputs[1], &choice = call.inputs[2];
  has_row_per_choice(call, 0, choice);
  const bool transposed = call.integer("transposed", 0) != 0, sum = call.integer("sum", 0) != 0;
  if (w.rank() != 3 || w.dim(0) < 1 || w.dim(transposed ? 1 : 2) != x.dim(-1)) {
    fail("expert_linear: the weight ", shape_string(w), " does not fit x ", shape_string(x),
         ": a matrix for each expert is wanted, ",
         transposed ? "with as many rows" : "with as many columns", " as a row of x is long");
  }
  const Axis out = w.axes[transposed ? 2 : 1];
  if (call.inputs.size() > 3) {
    const Type& bias = call.inputs[3];
    if (bias.rank() != 2 || bias.dim(0) != w.dim(0) || bias.dim(1) != out.size) {
      fail("expert_linear: the bias ", shape_string(bias), " does not fit the weight ",
           shape_string(w));
    }
    if (sum) fail("expert_linear: a bias belongs to each choice, and does not go with sum=yes");
  }
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (i != 2 && call.inputs[i].dtype != x.dtype) {
      fail("expert_linear: operands have one floating dtype, found ", name(call.inputs[i].dtype),
           " beside ", name(x.dtype));
    }
  }
  Type y{.dtype = x.dtype, .axes = {}};
  for (int i = 0; i + 1 < choice.rank(); ++i) y.axes.push_back(x.axes[i]);
  if (!sum) y.axes.push_back(choice.axes.back());
  y.axes.push_back(out);
  return {y};
}

// The experts are reached through ids alone, so no split may touch them. A bias must be added once,
// so nothing may be summed in pieces beside it.
IndexMap expert_linear_map(const OpCall& call) {
  const ExpertLinearShape s = expert_linear_shape(call);
  const std::string tokens = std::string("abcdefg").substr(0, call.inputs[2].rank() - 1);
  const std::string rows = tokens + "k";
  IndexMap map{{(s.x_each ? rows : tokens) + "i", s.transposed ? ".io" : ".oi", rows},
               {(s.sum ? tokens : rows) + "o"}};
  if (s.bias) {
    map.inputs.push_back("xo");  // a vector for each expert, not a table: x is a letter of its own
    map.whole = "xi";
  }
  return map;
}

void expert_linear_gradient(GradCall& g) {
  const ExpertLinearShape s = expert_linear_shape(g.call);
  const Value dy = g.dout(), x = g.inputs[0], weight = g.inputs[1], choice = g.inputs[2];
  if (s.bias && g.wants[3]) {
    g.input_grads[3] = g.builder.emit("embed_grad", {choice, dy}, {{"rows", s.experts}});
  }
  // The weight's gradient before x's: it is the last reader of x.
  if (g.wants[1]) {
    g.input_grads[1] = g.builder.emit(
        "expert_linear_grad",
        s.transposed ? std::vector<Value>{x, dy, choice} : std::vector<Value>{dy, x, choice},
        {{"experts", s.experts}});
  }
  if (g.wants[0]) {
    Attrs attrs;
    if (!s.transposed) attrs["transposed"] = int64_t{1};
    if (!s.x_each) attrs["sum"] = int64_t{1};
    g.input_grads[0] = g.builder.emit("expert_linear", {dy, weight, choice}, std::move(attrs));
  }
}

std::vector<Sample> expert_linear_samples() {
  const auto at = [](Type x, Type weight, std::vector<int64_t> choice, int64_t below) {
    return Sample{.inputs = {std::move(x), std::move(weight), of(std::move(choice), Dtype::kI32)},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = below};
  };
  const auto with = [](Sample sample, const char* attr) {
    sample.attrs[attr] = int64_t{1};
    return sample;
  };
  Sample biased = at(of({2, 3, 2, 5}), of({4, 7, 5}), {2, 3, 2}, 4);
  biased.inputs.push_back(of({4, 7}));
  Sample shared_biased = at(of({5, 3}), of({2, 4, 3}), {5, 1}, 2);
  shared_biased.inputs.push_back(of({2, 4}));
  Sample few_biased = at(of({11, 33}), of({3, 70, 33}), {11, 1}, 2);
  few_biased.inputs.push_back(of({3, 70}));
  return {at(of({2, 3, 5}), of({4, 7, 5}), {2, 3, 2}, 4),
          at(of({2, 3, 2, 5}), of({6, 7, 5}), {2, 3, 2}, 4),  // experts that nobody chooses
          with(at(of({2, 3, 2, 7}), of({4, 7, 5}), {2, 3, 2}, 4), "transposed"),
          with(with(at(of({2, 3, 2, 7}), of({4, 7, 5}), {2, 3, 2}, 4), "transposed"), "sum"),
          with(at(of({2, 5, 3, 16}), of({4, 24, 16}), {2, 5, 3}, 4), "sum"),
          with(at(of({3, 5}), of({2, 4, 5}), {3, 2}, 2), "sum"),  // one row for all choices
          biased, shared_biased, at(of({1, 1}), of({1, 1, 1}), {1, 1}, 1),
          at(of({4}), of({3, 2, 4}), {2}, 3),  // a single token
          // Few rows of long ones: most of one expert, and its results summed.
          with(at(of({5, 2, 70}), of({3, 9, 70}), {5, 2}, 2), "sum"), few_biased,
          at(of({2, 150, 40}), of({3, 72, 40}), {2, 150, 2}, 3)};  // tiles of rows, and a rest
}

std::vector<Sample> expert_linear_refused() {
  const Type choice = of({3, 2}, Dtype::kI32);
  return {
      {.inputs = {of({3, 5}), of({4, 7, 6}), choice}},
      {.inputs = {of({3, 5}), of({7, 5}), choice}},
      {.inputs = {of({3, 5}), of({4, 7, 5}), of({3, 2})}},
      {.inputs = {of({4, 5}), of({4, 7, 5}), choice}},
      {.inputs = {of({3, 3, 5}), of({4, 7, 5}), choice}},
      {.inputs = {of({3, 5}), of({4, 7, 5}, Dtype::kBF16), choice}},
      {.inputs = {of({3, 5}), of({4, 7, 5}), choice, of({4, 5})}},
      {.inputs = {of({3, 5}), of({4, 7, 5}), choice, of({4, 7})}, .attrs = {{"sum", int64_t{1}}}},
      {.inputs = {of({3, 5}), of({4, 7, 5})}}};
}

}  // namespace

extern const OpDef op_expert_linear = {
    .name = "expert_linear",
    .summary =
        "a linear map of the last axis by the weight of the expert that a row's choice names",
    .params = {{"x"},
               {"choice"},
               {"experts", Param::Kind::kSize},
               {"out", Param::Kind::kSize},
               {"bias", Param::Kind::kFlag, "no"},
               {"sum", Param::Kind::kFlag, "no"},
               {"init", Param::Kind::kInit, "normal(0.02)"}},
    .surface = surface,
    .infer = infer_expert_linear,
    .index_map = expert_linear_map,
    .flops =
        [](const OpCall& call) {
          const ExpertLinearShape s = expert_linear_shape(call);
          return product_of({2, s.count(), s.in, s.out});
        },
    .grad = expert_linear_gradient,
    .constants = {2},
    .one_dtype = true,
    .wants_dense = true,
    .multiplies = true,
    .linear =
        [](const OpCall& call) { return call.inputs.size() == 3 ? Linear::kEach : Linear::kNo; },
    .cost = CostClass::kProducts,
    .weight = 1,
    .samples = expert_linear_samples,
    .refused = expert_linear_refused,
};

}  // namespace adjoint
