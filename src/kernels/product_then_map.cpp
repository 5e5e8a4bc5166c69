#include "kernels/product_then_map.h"

#include <algorithm>

#include "kernels/backend.h"
#include "ops/in_turn.h"

namespace adjoint {

ProductThenMap::ProductThenMap(const KernelCall& k, OpCall product, OpCall map)
    : multiply_(std::move(product)),
      apply_(std::move(map)),
      product_(multiply_, k),
      map_(apply_, k) {
  const auto operands = static_cast<int64_t>(multiply_.inputs.size());
  product_.outputs = {k.outputs.back()};  // with their padding
  product_.in_strides.assign(k.in_strides.begin(), k.in_strides.begin() + operands);
  product_.out_strides = {k.out_strides.back()};
  map_.outputs = {k.outputs[0]};
  map_.in_strides = {k.out_strides.back()};
  map_.in_strides.insert(map_.in_strides.end(), k.in_strides.begin() + operands,
                         k.in_strides.end());
  map_.out_strides = {k.out_strides[0]};
}

std::shared_ptr<const ProductThenMap> ProductThenMap::of(const KernelCall& k, OpCall product,
                                                         OpCall map) {
  return std::shared_ptr<const ProductThenMap>(
      new ProductThenMap(k, std::move(product), std::move(map)));
}

Launch ProductThenMap::prepare(const Pointers& at) const {
  const auto operands = static_cast<int64_t>(multiply_.inputs.size());
  Pointers of_product{.in = {at.in.begin(), at.in.begin() + operands},
                      .out = {at.out.back()},
                      .workspace = at.workspace,
                      .stream = at.stream};
  Pointers of_map{
      .in = {at.out.back()}, .out = {at.out[0]}, .workspace = at.workspace, .stream = at.stream};
  of_map.in.insert(of_map.in.end(), at.in.begin() + operands, at.in.end());
  return [self = shared_from_this(), multiply = adjoint::prepare(product_, of_product),
          apply = adjoint::prepare(map_, of_map)] {
    multiply();
    apply();
  };
}

Bytes ProductThenMap::workspace() const {
  return std::max(workspace_bytes(product_), workspace_bytes(map_));
}

std::shared_ptr<const ProductThenMap> linear_act_calls(const KernelCall& k) {
  auto [product, map] = linear_act_in_turn(k.call);
  return ProductThenMap::of(k, std::move(product), std::move(map));
}

std::shared_ptr<const ProductThenMap> contract_map_calls(const KernelCall& k) {
  auto [product, map] = contract_map_in_turn(k.call);
  return ProductThenMap::of(k, std::move(product), std::move(map));
}

}  // namespace adjoint
