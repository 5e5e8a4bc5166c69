// A contraction of two objects on CUDA: through cuBLASLt where it has an algorithm, else a thread
// for each result. A third operand is an addend as large as the result, or a bias of its last axis.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace adjoint {

Launch contraction_cuda(const std::string& map, const KernelCall& call, const Pointers& at);
// y = gelu(contraction) by tanh, and the contraction itself beside it, in one launch: of y and the
// contraction, in that order, in `at`. Nothing where the library does not do it, or where the
// contraction must be rounded to more than 16 bits before it is used.
std::optional<Launch> gelu_contraction_cuda(const std::string& map, const KernelCall& call,
                                            const Pointers& at);
// y = contraction * gelu'(x), x the third of `at`'s operands and laid out as y: the same way.
std::optional<Launch> gelu_grad_contraction_cuda(const std::string& map, const KernelCall& call,
                                                 const Pointers& at);
// Whether two objects lie alike, padding included: a library that writes or reads one beside the
// other takes their layout for one.
bool lie_alike(const Type& a, const Strides& a_strides, const Type& b, const Strides& b_strides);
// Whether a product's epilogue is this body, in this dtype: that of p gelu'(x), by tanh.
bool product_epilogue_takes(const Body& body, Dtype dtype);
Bytes contraction_cuda_workspace(const std::string& map, const KernelCall& call);
// Keys in a table of tuned products; none where it is not the library that multiplies.
std::vector<std::string> contraction_cuda_products(const std::string& map, const KernelCall& call);
std::vector<std::string> gelu_contraction_cuda_products(const std::string& map,
                                                        const KernelCall& call);
std::vector<std::string> gelu_grad_contraction_cuda_products(const std::string& map,
                                                             const KernelCall& call);

}  // namespace adjoint
