// A product, and an elementwise function of it and of operands beside it: two calls made of one,
// for devices without an epilogue that does both. Either runs as it would run alone: the same bits.
#pragma once
#include <memory>

#include "kernels/kernel.h"

namespace adjoint {

class ProductThenMap : public std::enable_shared_from_this<ProductThenMap> {
 public:
  // The product takes the first operands and makes the call's last result. The function takes that
  // and the operands that are left, and makes the first result, which may be the same.
  static std::shared_ptr<const ProductThenMap> of(const KernelCall& k, OpCall product, OpCall map);
  ProductThenMap(const ProductThenMap&) = delete;
  ProductThenMap& operator=(const ProductThenMap&) = delete;

  const KernelCall& product() const { return product_; }
  Launch prepare(const Pointers& at) const;
  Bytes workspace() const;

 private:
  ProductThenMap(const KernelCall& k, OpCall product, OpCall map);

  OpCall multiply_, apply_;  // the kernels refer to them
  KernelCall product_, map_;
};

// The calls of two ops that are such pairs. Without `keep` linear_act's product is written where
// the function then writes over it.
std::shared_ptr<const ProductThenMap> linear_act_calls(const KernelCall& k);
std::shared_ptr<const ProductThenMap> contract_map_calls(const KernelCall& k);

}  // namespace adjoint
