// Any body at all, written in the attribute `body`: gradients of body ops and fused chains.
#include <map>
#include <mutex>

#include "base/error.h"
#include "ops/samples.h"
#include "ops/shape_attr.h"

namespace adjoint {

extern const OpDef op_map;

namespace {

// Parsed once per text: blocks repeat, and a step asks often.
Body body(const OpCall& call) {
  static std::map<std::string, Body, std::less<>> parsed;
  static std::mutex guard;
  const std::string text = call.text("body");
  const std::lock_guard lock(guard);
  const auto found = parsed.find(text);
  if (found != parsed.end()) return found->second;
  return parsed.emplace(text, parse_body(text)).first->second;
}

std::vector<Axis> space(const OpCall& call) {
  return call.attrs.count("shape") ? shape_attr(call) : broadcast("map", call.inputs);
}

std::vector<Sample> samples() {
  const auto with = [](std::vector<Type> inputs, const char* text) {
    return Sample{.inputs = std::move(inputs), .attrs = {{"body", std::string(text)}}};
  };
  Sample said = with({of({})}, "mul(x0, 2)");
  said.attrs["shape"] = std::vector<int64_t>{3, 4};
  return {with({of({3, 5}), of({3, 5})}, "t0 = mul(x0, x1); t0, t0/1"),
          with({of({2, 3, 5})}, "rowsum(mul(x0, x0))/2/dropped"),
          with({of({2, 3, 5})}, "rowsum(x0)/one, exp(x0)/2"), said};
}

}  // namespace

void say_body(Morphism& m, const Body& body) {
  if (!op_named(m.op).body || !says_body(m)) {
    // A body that said its space runs over the same one.
    Attrs kept;
    const auto shape = m.attrs.find("shape");
    if (op_named(m.op).space && shape != m.attrs.end()) kept.insert(*shape);
    m.attrs = std::move(kept);
  }
  m.op = op_map.name;
  m.attrs["body"] = print(body);
}

extern const OpDef op_map = {
    .name = "map",
    .summary = "a body given as text: gradients of elementwise and row ops, fused chains",
    .body = body,
    .space = space,
    .says_body = true,
    .samples = samples,
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3})}, .attrs = {{"body", std::string("sorcery(x0)")}}},
              {.inputs = {of({3})}, .attrs = {{"body", std::string("add(x0, x1)")}}},
              {.inputs = {of({3}, Dtype::kI64)}, .attrs = {{"body", std::string("exp(x0)")}}},
              {.inputs = {of({3}), of({3})},
               .attrs = {{"body", std::string("mul(x0, random1'a')")}}}};
        },
};

}  // namespace adjoint
