// y = f(contract(a, b), x, ...): an elementwise function, written as text, of a product and of
// operands of the product's type beside it. It comes of the gradient of an activation behind a
// linear map: f(p, x) = p gelu'(x), p the product of the gradient that arrives and the weight. The
// CPU runs the product and then f. A device with an epilogue for f does it in one launch.
#include "base/error.h"
#include "ops/builder.h"
#include "ops/cuda_contraction.h"
#include "ops/product_then_map.h"
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

std::shared_ptr<const ProductThenMap> in_turn(const KernelCall& k) {
  return ProductThenMap::of(k, product_call(k.call), map_call(k.call));
}

// The epilogue reads what stands beside the product as it writes the result. It takes sums that are
// not rounded yet, so whoever wants the bits that the two have apart gets the two in turn.
bool has_epilogue(const KernelCall& k) {
  return !k.deterministic && k.call.inputs.size() == 3 && k.in_strides[2] == k.out_strides[0] &&
         product_epilogue_takes(body_of(map_call(k.call)), k.outputs[0].dtype);
}

Launch cuda(const KernelCall& k, const Pointers& at) {
  const auto calls = in_turn(k);
  if (has_epilogue(k)) {
    const std::string map = k.call.text("map");
    if (const auto one = gelu_grad_contraction_cuda(map, calls->product(), at)) return *one;
  }
  return calls->prepare(at);
}

std::vector<std::string> cuda_products(const KernelCall& k) {
  if (!has_epilogue(k)) return {};
  return gelu_grad_contraction_cuda_products(k.call.text("map"), in_turn(k)->product());
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
          return count_flops(product_call(call)) + count_flops(map_call(call));
        },
    .grad = grad,
    .one_dtype = true,
    .multiplies = true,
    .meaning = meaning,
    .cpu = [](const KernelCall& k, const Pointers& at) { return in_turn(k)->prepare(at); },
    .cpu_workspace = [](const KernelCall& k) { return in_turn(k)->workspace(); },
    .cuda = cuda,
    .cuda_workspace = [](const KernelCall& k) { return in_turn(k)->workspace(); },
    .cuda_products = cuda_products,
    .samples = samples,
    .refused = refused,
};

}  // namespace adjoint
