// Where attention's operands are.
#pragma once
#include <array>
#include <span>

#include "kernels/rows.h"
#include "ops/attention.h"

namespace adjoint {

Rows rows_of(const Strides& strides, void* data);
// The rows of q, k and v inside `pointers`, which are laid out by `strides`.
std::array<Rows, 3> rows_of(const AttentionOperands& operands, std::span<const Strides> strides,
                            std::span<void* const> pointers);

}  // namespace adjoint
