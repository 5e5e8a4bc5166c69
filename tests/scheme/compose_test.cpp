// Schemes in sequence and side by side, and what they keep.
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "scheme/canonical.h"

namespace adjoint {
namespace {

Type vector_of(int64_t n, const char* label = "n") { return {Dtype::kF32, {{label, n}}}; }

// x[n] -> op(x, weight) with a weight of its own or a shared one.
Scheme step(const std::string& op, const std::string& weight, int64_t n = 3) {
  Scheme s;
  s.name = op;
  const Value x = s.add_input({.type = vector_of(n), .source = {"x"}, .role = Role::kInput});
  const Value w = s.add_input(
      {.type = vector_of(n), .source = {weight}, .role = Role::kParameter, .init = Init{}});
  const Value y = s.add({.type = vector_of(n), .source = {op}});
  s.morphisms = {{.op = op, .inputs = {x, w}, .outputs = {y}, .source = {op}}};
  s.outputs = {y};
  return s;
}

std::vector<std::string> inputs_of(const Scheme& s) {
  std::vector<std::string> paths;
  for (const Value in : s.inputs) paths.push_back(s[in].source.path);
  return paths;
}
std::vector<std::string> ops_of(const Scheme& s) {
  std::vector<std::string> ops;
  for (const Morphism& m : s.morphisms) ops.push_back(m.op);
  return ops;
}
using Strings = std::vector<std::string>;

TEST(Compose, FeedsOutputsIntoInputs) {
  const Scheme both = compose(step("f", "wf"), step("g", "wg"));
  verify_structure(both);
  EXPECT_EQ(both.name, "g.f");
  EXPECT_EQ(inputs_of(both), (Strings{"x", "wf", "wg"}));
  EXPECT_EQ(ops_of(both), (Strings{"f", "g"}));
  EXPECT_EQ(both.morphisms[1].inputs[0], both.morphisms[0].outputs[0]);
  EXPECT_EQ(both.outputs, both.morphisms[1].outputs);
}

TEST(Compose, SharesParametersOfOneSource) {
  const Scheme both = compose(step("f", "w"), step("g", "w"));
  verify_structure(both);
  EXPECT_EQ(inputs_of(both), (Strings{"x", "w"}));
  EXPECT_EQ(both.morphisms[0].inputs[1], both.morphisms[1].inputs[1]);
}

TEST(Compose, IsAssociative) {
  const Scheme f = step("f", "a"), g = step("g", "b"), h = step("h", "a");
  EXPECT_EQ(print(canonical(compose(compose(f, g), h))),
            print(canonical(compose(f, compose(g, h)))));
}

TEST(Compose, HasIdentities) {
  Scheme identity;
  const Value x = identity.add_input({.type = vector_of(3), .source = {"x"}, .role = Role::kInput});
  identity.outputs = {x};
  const Scheme f = step("f", "w");
  EXPECT_EQ(print(canonical(compose(identity, f))), print(canonical(f)));
  EXPECT_EQ(print(canonical(compose(f, identity))), print(canonical(f)));
}

TEST(Compose, RefusesWhatDoesNotFit) {
  const auto said = [](const Scheme& f, const Scheme& g) {
    return error_text([&] { compose(f, g); });
  };
  EXPECT_EQ(said(step("f", "a", 3), step("g", "b", 4)),
            "compose: output 0 of f is f32[n=3], input 0 of g wants f32[n=4]");
  Scheme many = step("f", "a");
  many.outputs = {many.outputs[0], many.outputs[0], many.outputs[0]};
  EXPECT_EQ(said(many, step("g", "b")), "compose: f gives 3 objects, g takes 2");
  Scheme other = step("g", "a");
  other[other.inputs[1]].type = vector_of(4);
  EXPECT_EQ(said(step("f", "a"), other), "compose: a is f32[n=3] in one and f32[n=4] in the other");
}

TEST(Product, StandsSideBySide) {
  const Scheme both = product(step("f", "wf"), step("g", "wg"));
  verify_structure(both);
  EXPECT_EQ(both.name, "f*g");
  EXPECT_EQ(inputs_of(both), (Strings{"x", "wf", "x", "wg"}));
  EXPECT_NE(both.morphisms[0].inputs[0], both.morphisms[1].inputs[0]) << "two batches, not one";
  EXPECT_EQ(both.outputs,
            (std::vector<Value>{both.morphisms[0].outputs[0], both.morphisms[1].outputs[0]}));
  EXPECT_EQ(inputs_of(product(step("f", "w"), step("g", "w"))), (Strings{"x", "w", "x"}));
}

TEST(Product, IsAssociative) {
  const Scheme f = step("f", "a"), g = step("g", "b"), h = step("h", "a");
  EXPECT_EQ(print(canonical(product(product(f, g), h))),
            print(canonical(product(f, product(g, h)))));
}

TEST(Scheme, KeepsCarries) {
  Scheme f = step("f", "w");
  f.carries = {{f.inputs[1], f.outputs[0]}};
  const Scheme both = product(step("g", "v"), f);
  verify_structure(both);
  EXPECT_EQ(both.carries,
            (std::vector<Carry>{{both.morphisms[1].inputs[1], both.morphisms[1].outputs[0]}}));
}

TEST(Scheme, ProducersReadersAndFind) {
  const Scheme both = compose(step("f", "w"), step("g", "w"));
  const Value w = *both.find({"w"}), y = *both.find({"f"});
  EXPECT_EQ(both.find({"nothing"}), std::nullopt);
  EXPECT_EQ(both.find({"w", "grad"}), std::nullopt);
  EXPECT_EQ(producers(both)[w], -1);
  EXPECT_EQ(producers(both)[y], 0);
  EXPECT_EQ(readers(both)[w], (std::vector<int>{0, 1}));
  EXPECT_EQ(readers(both)[y], std::vector<int>{1});
}

TEST(Scheme, CompactDropsWhatNothingMakes) {
  Scheme s = step("f", "w");
  s.objects.insert(s.objects.begin(), {.type = vector_of(9), .source = {"unused"}});
  for (Value& v : s.inputs) ++v;
  for (Value& v : s.outputs) ++v;
  for (Value& v : s.morphisms[0].inputs) ++v;
  for (Value& v : s.morphisms[0].outputs) ++v;
  EXPECT_EQ(compact(s), step("f", "w"));
  EXPECT_EQ(compact(step("f", "w")), step("f", "w"));
}

TEST(SchemeDeath, VerifyStructureFindsWhatIsBroken) {
  const auto broken = [](const char* why, auto change) {
    Scheme s = compose(step("f", "a"), step("g", "b"));
    verify_structure(s);
    change(s);
    EXPECT_DEATH(verify_structure(s), why);
  };
  broken("made before it is read", [](Scheme& s) { std::swap(s.morphisms[0], s.morphisms[1]); });
  broken("an object is made once", [](Scheme& s) { s.morphisms.push_back(s.morphisms[0]); });
  broken("an input is listed once", [](Scheme& s) { s.inputs.push_back(s.inputs[0]); });
  broken("an operand is an object", [](Scheme& s) { s.morphisms[0].inputs[0] = 99; });
  broken("a result is an object", [](Scheme& s) { s.morphisms[0].outputs[0] = -1; });
  broken("an output is made",
         [](Scheme& s) { s.outputs = {s.add({.type = {}, .source = {"z"}})}; });
  broken("says where it came from", [](Scheme& s) { s[0].source.path.clear(); });
  broken("axes have sizes", [](Scheme& s) { s[0].type.axes[0].size = 0; });
  broken("state keeps its type", [](Scheme& s) {
    const Value other = s.add_input({.type = vector_of(4), .source = {"m"}, .role = Role::kState});
    s.carries = {{other, s.outputs[0]}};
  });
}

}  // namespace
}  // namespace adjoint
