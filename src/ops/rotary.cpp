// Rotary positions (Su et al., 2021): the pair (x[i], x[i + dim/2]) of every head turns by the
// angle position * base^(-2i/dim). Cosines and sines are a table that all heads and layers share.
#include "base/error.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

// The table's outputs, made once per scheme for each size and base.
std::vector<Value> shared_table(Builder& b, const Attrs& attrs) {
  int others = 0;
  for (const Morphism& m : b.scheme().morphisms) {
    if (m.op != "rotary_table") continue;
    if (m.attrs == attrs) return m.outputs;
    ++others;
  }
  const Source source = b.source();
  const std::string number = others ? "#" + std::to_string(others + 1) : "";
  b.at({"rotary_table" + number}, b.phase(), b.role());
  const std::vector<Value> made = b.emit_all("rotary_table", {}, attrs);
  b.at(source, b.phase(), b.role());
  return made;
}

// x[batch, seq, heads*dim] -> split by heads -> turned -> merged again.
std::vector<Value> surface(SurfaceCall& call) {
  const Type type = call.type("x");
  const int64_t heads = call.size("heads");
  if (type.rank() != 3) fail("rotary: wants x[batch, seq, heads*dim], found ", shape_string(type));
  if (heads < 1 || type.dim(2) % (2 * heads) != 0) {
    fail("rotary: a row of ", type.dim(2), " does not split into ", heads, " heads of even size");
  }
  Builder& b = call.builder;
  const auto table =
      shared_table(b, {{"shape", std::vector<int64_t>{type.dim(1), 1, type.dim(2) / heads}},
                       {"base", call.number("base")}});
  const Source source = b.source();
  b.at({source.path + ".split"}, b.phase(), b.role());
  const Value split = b.emit("split", {call.tensor("x")}, {{"parts", heads}});
  b.at({source.path + ".turned"}, b.phase(), b.role());
  const Value turned = b.emit("rotary", {split, table[0], table[1]});
  b.at(source, b.phase(), b.role());
  return {b.emit("merge", {turned})};
}

Body body(const OpCall& call) {
  bool fits = call.inputs.size() == 3 && call.inputs[0].rank() == 4;
  for (size_t i = 1; fits && i < 3; ++i) {
    const Type &x = call.inputs[0], &t = call.inputs[i];
    fits = t.rank() == 3 && t.dim(0) == x.dim(1) && t.dim(1) == 1 && t.dim(2) == x.dim(3);
  }
  if (!fits) fail("rotary: wants x[batch, seq, heads, dim] and cos, sin [seq, 1, dim]");
  if (call.inputs[0].dim(3) % 2) {
    fail("rotary: heads must be of even size, found ", call.inputs[0].dim(3));
  }
  Body body;
  const Expr x = input(body, 0), cosine = input(body, 1), sine = input(body, 2);
  body.outputs = {{.node = (x * cosine + rotate(x) * sine).node}};
  return body;
}

std::vector<Sample> samples() {
  return {{.inputs = {of({2, 3, 2, 4}), of({3, 1, 4}), of({3, 1, 4})}},
          {.inputs = {of({1, 5, 3, 6}), of({5, 1, 6}), of({5, 1, 6})}}};
}

std::vector<Sample> refused() {
  return {{.inputs = {of({2, 3, 2, 4}), of({3, 1, 6}), of({3, 1, 6})}},
          {.inputs = {of({2, 3, 2, 3}), of({3, 1, 3}), of({3, 1, 3})}}};
}

}  // namespace

extern const OpDef op_rotary = {
    .name = "rotary",
    .summary = "pairs of a head turned by angles that grow with the position",
    .params = {{"x"}, {"heads", Param::Kind::kSize}, {"base", Param::Kind::kNumber, "10000"}},
    .surface = surface,
    .body = body,
    .constants = {1, 2},
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
