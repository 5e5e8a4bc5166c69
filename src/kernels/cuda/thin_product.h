// Products of a few rows by a matrix whose rows lie side by side, on a GPU: what a token needs.
// They wait for memory alone, so the matrix is read once, and codes as they are.
#pragma once
#include "kernels/cuda/cublaslt/product.h"
#include "kernels/kernel.h"
#include "kernels/product.h"

namespace adjoint {

// By shape, strides and dtype alone.
bool thin_on_cuda(const Product& product);
Launch thin_product_cuda(const Product& product, const ProductPointers& places, const Pointers& at);

// Rows that each chose a matrix (expert_linear), where they are few: no order of rows is needed.
bool thin_experts_on_cuda(const KernelCall& call);
Launch thin_experts_cuda(const KernelCall& call, const Pointers& at);

}  // namespace adjoint
