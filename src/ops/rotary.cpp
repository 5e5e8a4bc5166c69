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

// The numbers that each way of stretching the angles takes.
Attrs scaling_attrs(const SurfaceCall& call) {
  const std::string word = call.has("scaling") ? call.word("scaling") : "none";
  std::vector<std::string_view> numbers;
  if (word == "none") return {};
  if (word == "linear") numbers = {"factor"};
  if (word == "llama3") numbers = {"factor", "low", "high", "original"};
  if (word == "yarn") numbers = {"factor", "fast", "slow", "original"};
  if (numbers.empty()) {
    fail("rotary: scaling is none, linear, llama3 or yarn, found '", word, "'");
  }
  Attrs attrs = {{"scaling", word}};
  for (const std::string_view name : numbers) attrs[std::string(name)] = call.number(name);
  return attrs;
}

// x[batch, seq, heads*dim] -> split by heads -> turned -> merged again. Of `dims` numbers a head,
// the others stay as they are.
std::vector<Value> surface(SurfaceCall& call) {
  const Type type = call.type("x");
  const int64_t heads = call.size("heads");
  if (type.rank() != 3) fail("rotary: wants x[batch, seq, heads*dim], found ", shape_string(type));
  if (heads < 1 || type.dim(2) % (2 * heads) != 0) {
    fail("rotary: a row of ", type.dim(2), " does not split into ", heads, " heads of even size");
  }
  const int64_t size = type.dim(2) / heads, dims = call.has("dims") ? call.size("dims") : size;
  if (dims < 2 || dims > size || dims % 2) {
    fail("rotary: dims must be an even number from 2 to the ", size, " of a head, found ", dims);
  }
  Builder& b = call.builder;
  Attrs angles = scaling_attrs(call);
  angles["shape"] = std::vector<int64_t>{type.dim(1), 1, dims};
  angles["base"] = call.number("base");
  const auto table = shared_table(b, angles);
  const Source source = b.source();
  const auto at = [&](std::string_view part) -> Builder& {
    return b.at({source.path + "." + std::string(part)}, b.phase(), b.role());
  };
  const Value split = at("split").emit("split", {call.tensor("x")}, {{"parts", heads}});
  Value turned = split;
  if (dims < size) {
    const auto slice = [&](int64_t start, int64_t count) {
      return b.emit("slice", {split}, {{"start", start}, {"size", count}});
    };
    at("first");
    const Value first = slice(0, dims);
    at("rest");
    const Value rest = slice(dims, size - dims);
    turned = at("turned").emit("rotary", {first, table[0], table[1]});
    turned = at("joined").emit("concat", {turned, rest}, {{"axis", int64_t{3}}});
  } else {
    turned = at("turned").emit("rotary", {split, table[0], table[1]});
  }
  b.at(source, b.phase(), b.role());
  return {b.emit("merge", {turned})};
}

Body body(const OpCall& call) {
  bool fits = call.inputs.size() == 3 && call.inputs[0].rank() == 4;
  for (size_t i = 1; fits && i < 3; ++i) {
    const Type &x = call.inputs[0], &t = call.inputs[i];
    fits = t.rank() >= 3 && t.dim(-3) == x.dim(1) && t.dim(-2) == 1 && t.dim(-1) == x.dim(3);
    // Samples that begin at positions of their own have angles of their own.
    if (t.rank() != 3) fits = fits && t.rank() == 4 && t.dim(0) == x.dim(0);
  }
  if (!fits) {
    fail(
        "rotary: wants x[batch, seq, heads, dim] and cos, sin [seq, 1, dim] or [batch, seq, 1, "
        "dim]");
  }
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
          {.inputs = {of({2, 3, 2, 4}), of({2, 3, 1, 4}), of({2, 3, 1, 4})}},
          {.inputs = {of({1, 5, 3, 6}), of({5, 1, 6}), of({5, 1, 6})}}};
}

std::vector<Sample> refused() {
  return {{.inputs = {of({2, 3, 2, 4}), of({3, 1, 6}), of({3, 1, 6})}},
          {.inputs = {of({2, 3, 2, 4}), of({3, 3, 1, 4}), of({3, 3, 1, 4})}},
          {.inputs = {of({2, 3, 2, 3}), of({3, 1, 3}), of({3, 1, 3})}}};
}

}  // namespace

extern const OpDef op_rotary = {
    .name = "rotary",
    .summary = "pairs of a head turned by angles that grow with the position",
    .params = {{"x"},
               {"heads", Param::Kind::kSize},
               {"base", Param::Kind::kNumber, "10000"},
               {"dims", Param::Kind::kSize, "none"},
               {"scaling", Param::Kind::kWord, "none"},
               {"factor", Param::Kind::kNumber, "1"},
               {"low", Param::Kind::kNumber, "1"},
               {"high", Param::Kind::kNumber, "4"},
               {"fast", Param::Kind::kNumber, "32"},
               {"slow", Param::Kind::kNumber, "1"},
               {"original", Param::Kind::kNumber, "8192"}},
    .surface = surface,
    .body = body,
    .constants = {1, 2},
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
