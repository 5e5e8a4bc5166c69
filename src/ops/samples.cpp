#include "ops/samples.h"

namespace adjoint {

Type of(std::vector<int64_t> sizes, Dtype dtype) {
  Type t{.dtype = dtype};
  for (size_t i = 0; i < sizes.size(); ++i) {
    t.axes.push_back({std::string(1, static_cast<char>('a' + i)), sizes[i]});
  }
  return t;
}

Body unary_body(Expr (*f)(Expr)) {
  Body body;
  body.outputs = {{.node = f(input(body, 0)).node}};
  return body;
}

Body binary_body(Expr (*f)(Expr, Expr)) {
  Body body;
  const Expr a = input(body, 0), b = input(body, 1);
  body.outputs = {{.node = f(a, b).node}};
  return body;
}

std::vector<Sample> one_operand_samples() {
  return {{.inputs = {of({1})}}, {.inputs = {of({3, 5})}}, {.inputs = {of({2, 3, 1031})}}};
}

std::vector<Sample> saturating_samples() {
  auto samples = one_operand_samples();
  samples.push_back({.inputs = {of({4, 3})}, .fills = {Sample::Fill::kLarge}});
  return samples;
}

std::vector<Sample> two_operand_samples() {
  return {{.inputs = {of({3, 5}), of({3, 5})}},
          {.inputs = {of({2, 3, 7}), of({7})}},     // a bias
          {.inputs = {of({3, 2, 5}), of({2, 5})}},  // positions
          {.inputs = {of({4, 6}), of({4, 1})}},     // one value a row
          {.inputs = {of({5, 3}), of({})}},         // one value in all
          {.inputs = {of({}), of({})}},
          {.inputs = {of({1, 1, 3}), of({1, 1, 3})}},
          {.inputs = {of({3, 17000}), of({17000})}}};  // wide: the CPU sums it by column
}

std::vector<Sample> two_operand_refusals() {
  return {{.inputs = {of({3, 5}), of({3, 4})}}, {.inputs = {of({3, 5})}}};
}

std::vector<Sample> no_operand_refusal() { return {{.inputs = {}}}; }

}  // namespace adjoint
