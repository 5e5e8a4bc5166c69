// w as codes of few bits would have it: every number becomes the nearest of 2^bits - 1 levels at
// equal distances, whose largest is the row's largest |w|. So a model is trained with the weights
// that it will have as codes (Jacob et al., 2018). It has no slope; its gradient passes straight
// through (Bengio et al., 2013). A row is what shares a scale: the notation splits rows into
// groups, or makes one row of the whole tensor, by views.
#include "base/error.h"
#include "ops/builder.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

Body body(const OpCall& call) {
  const int64_t bits = call.integer("bits");
  if (call.inputs.size() != 1 || !is_float(call.inputs[0].dtype)) {
    fail("fake_quantize: wants one operand of floating numbers");
  }
  if (bits < 2 || bits > 8) fail("fake_quantize: bits must be 2 to 8, found ", bits);
  Body body;
  const Expr w = input(body, 0);
  const Expr scale = row_max(max(w, -w)) / static_cast<double>((1 << (bits - 1)) - 1);
  const Expr zero = constant(body, 0);
  // A row of zeros has the scale 0.
  body.outputs = {{.node = select(less(zero, scale), nearest_whole(w / scale) * scale, zero).node}};
  return body;
}

std::vector<Value> surface(SurfaceCall& call) {
  const Value w = call.tensor("w");
  const Type type = call.type("w");
  const int64_t bits = call.size("bits"), group = call.size("group");
  if (type.rank() < 1) fail("fake_quantize: w must have an axis, found a single number");
  const bool whole = call.flag("whole");
  if (whole && group > 0) fail("fake_quantize: say group=", group, " or whole=yes, not both");
  const int64_t row = type.dim(-1);
  if (group < 0 || (group > 0 && row % group)) {
    fail("fake_quantize: groups of ", group, " do not divide rows of ", row);
  }
  Builder& b = call.builder;
  const auto rounded = [&](Value v) { return b.emit("fake_quantize", {v}, {{"bits", bits}}); };
  Value made;
  if (whole) {
    Value flat = w;
    for (int i = 1; i < type.rank(); ++i) flat = b.emit("merge", {flat});
    made = rounded(flat);
    for (int i = 0; i + 1 < type.rank(); ++i) {
      made = b.emit("split", {made}, {{"parts", type.dim(i)}});
    }
  } else if (group > 0 && group < row) {
    made = b.emit("merge", {rounded(b.emit("split", {w}, {{"parts", row / group}}))});
  } else {
    made = rounded(w);
  }
  b.scheme()[made].type.axes = type.axes;  // views name axes anew
  return {made};
}

std::vector<Sample> samples() {
  const auto at = [](std::vector<int64_t> sizes, int64_t bits) {
    return Sample{.inputs = {of(std::move(sizes))}, .attrs = {{"bits", bits}}};
  };
  return {at({7}, 8), at({3, 5}, 4), at({3, 4, 32}, 4), at({2, 1031}, 8), at({5, 16}, 2)};
}

std::vector<Sample> refused() {
  return {{.inputs = {of({3})}, .attrs = {{"bits", int64_t{1}}}},
          {.inputs = {of({3})}, .attrs = {{"bits", int64_t{9}}}},
          {.inputs = {of({3}, Dtype::kI32)}, .attrs = {{"bits", int64_t{8}}}},
          {.inputs = {}, .attrs = {{"bits", int64_t{8}}}}};
}

}  // namespace

extern const OpDef op_fake_quantize = {
    .name = "fake_quantize",
    .summary = "w rounded to codes of `bits` bits, one scale a row, a group of it or the whole",
    .params = {{"w"},
               {"bits", Param::Kind::kSize, "8"},
               {"group", Param::Kind::kSize, "0"},
               {"whole", Param::Kind::kFlag, "no"}},
    .surface = surface,
    .body = body,
    .grad = [](GradCall& g) { g.input_grads[0] = g.dout(); },
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
