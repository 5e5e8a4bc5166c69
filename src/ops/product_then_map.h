// A product, and an elementwise function of it and of operands beside it: two calls made of one,
// for devices without an epilogue that does both. Either runs as it would run alone: the same bits.
#pragma once
#include <memory>

#include "ops/op_def.h"

namespace adjoint {

// The body of a function of single elements, and of nothing else: neither of their places nor of
// random numbers.
bool is_elementwise(const Body& body);

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

}  // namespace adjoint
