// A product and an elementwise function of it and of further operands: one call run as two, for
// devices without such an epilogue. Each runs as it would alone, with the same bits.
#pragma once
#include <memory>

#include "kernels/kernel.h"

namespace adjoint {

class ProductThenMap : public std::enable_shared_from_this<ProductThenMap> {
 public:
  // The product takes the first operands and makes the call's last result. The function takes that
  // and the remaining operands, and makes the call's first result, which may be the same object.
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

// The two ops that are such pairs. Without `keep` the function overwrites linear_act's product.
std::shared_ptr<const ProductThenMap> linear_act_calls(const KernelCall& k);
std::shared_ptr<const ProductThenMap> contract_map_calls(const KernelCall& k);

}  // namespace adjoint
