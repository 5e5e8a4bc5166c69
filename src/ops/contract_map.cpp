// y = f(contract(a, b), x, ...): an elementwise function, written as text, of a product and of
// operands of the product's type beside it. It comes of the gradient of an activation behind a
// linear map: f(p, x) = p gelu'(x), p the product of the gradient that arrives and the weight. The
// CPU runs the product and then f. A device with an epilogue for f does it in one launch.
#include "base/counts.h"
#include "base/error.h"
#include "body/facts.h"
#include "ops/builder.h"
#include "ops/gelu.h"
#include "ops/in_turn.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

OpCall product_call(const OpCall& call) {
  if (call.inputs.size() < 3) {
    fail("contract_map: wants two operands of a product and others beside it, found ",
         call.inputs.size());
  }
  OpCall product{.op = "contract", .inputs = {call.inputs[0], call.inputs[1]}};
  for (const char* name : {"map", "math"}) {
    if (const auto attr = call.attrs.find(name); attr != call.attrs.end()) {
      product.attrs.insert(*attr);
    }
  }
  return product;
}

OpCall map_call(const OpCall& call) {
  OpCall map{.op = "map",
             .inputs = infer_types(product_call(call)),
             .attrs = {{"body", call.text("body")}}};
  map.inputs.insert(map.inputs.end(), call.inputs.begin() + 2, call.inputs.end());
  return map;
}

std::vector<Type> infer(const OpCall& call) {
  const OpCall map = map_call(call);
  const Type& product = map.inputs[0];
  for (const Type& beside : map.inputs) {
    if (!same_shape(beside, product) || beside.dtype != product.dtype) {
      fail("contract_map: what stands beside the product must be ", to_string(product),
           " as it is, found ", to_string(beside));
    }
  }
  const Body body = body_of(map);
  if (!is_elementwise(body) || body.num_inputs() != static_cast<int>(map.inputs.size())) {
    fail("contract_map: wants the body of an elementwise op of ", map.inputs.size(),
         " operands, found \"", call.text("body"), "\"");
  }
  return {product};
}

std::vector<Value> meaning(Builder& b, std::span<const Value> in, const Attrs& attrs) {
  Attrs product = {{"map", attrs.at("map")}};
  std::vector<Value> operands = {b.emit("contract", {in[0], in[1]}, product)};
  operands.insert(operands.end(), in.begin() + 2, in.end());
  return {b.emit("map", operands, {{"body", attrs.at("body")}})};
}

void grad(GradCall& g) {
  Builder& b = g.builder;
  const int first = static_cast<int>(b.scheme().morphisms.size());
  const std::pair<Value, Value> seed[] = {{meaning(b, g.inputs, g.call.attrs)[0], g.dout()}};
  const int last = static_cast<int>(b.scheme().morphisms.size());
  std::vector<Value> wanted;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (g.wants[i]) wanted.push_back(g.inputs[i]);
  }
  const auto found = backpropagate(b, first, last, seed, wanted);
  size_t next = 0;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    if (g.wants[i]) g.input_grads[i] = found[next++];
  }
}

std::vector<Sample> samples() {
  const auto with = [](std::vector<Type> inputs, const char* map, const std::string& body) {
    return Sample{.inputs = std::move(inputs),
                  .attrs = {{"map", std::string(map)}, {"body", body}}};
  };
  return {with({of({3, 5}), of({5, 7}), of({3, 7})}, "mk,kn->mn", "mul(x0, tanh(x1))"),
          with({of({2, 3, 5}), of({5, 7}), of({2, 3, 7}), of({2, 3, 7})}, "abo,oi->abi",
               "add(mul(x0, x1), x2)"),
          with({of({2, 33, 16}), of({16, 64}), of({2, 33, 64})}, "abo,oi->abi",
               print(gelu_gradient()))};
}

std::vector<Sample> refused() {
  const auto with = [](std::vector<Type> inputs, const char* body) {
    return Sample{.inputs = std::move(inputs),
                  .attrs = {{"map", std::string("mk,kn->mn")}, {"body", std::string(body)}}};
  };
  return {with({of({3, 5}), of({5, 7})}, "tanh(x0)"),
          with({of({3, 5}), of({5, 7}), of({3, 1})}, "mul(x0, x1)"),
          with({of({3, 5}), of({5, 7}), of({3, 7})}, "rowsum(mul(x0, x1))/one"),
          with({of({3, 5}), of({5, 7}), of({3, 7})}, "tanh(x0)")};
}

}  // namespace

InTurn contract_map_in_turn(const OpCall& call) { return {product_call(call), map_call(call)}; }

extern const OpDef op_contract_map = {
    .name = "contract_map",
    .summary = "an elementwise function of a product and of operands beside it",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          IndexMap map = index_map_of(product_call(call));
          for (const char c : map.inputs[0] + map.inputs[1]) {
            // A function of a sum is no sum of functions.
            if ((map.outputs[0] + map.whole).find(c) == std::string::npos) map.whole += c;
          }
          map.inputs.resize(call.inputs.size(), map.outputs[0]);
          return map;
        },
    .flops =
        [](const OpCall& call) {
          return sum_of(count_flops(product_call(call)), count_flops(map_call(call)));
        },
    .grad = grad,
    .one_dtype = true,
    .multiplies = true,
    .meaning = meaning,
    .cost = CostClass::kProducts,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
