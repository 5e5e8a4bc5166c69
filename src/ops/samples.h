// What op files need to write samples in one line each.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// A type with axes a, b, c, ... of the given sizes.
Type of(std::vector<int64_t> sizes, Dtype dtype = Dtype::kF32);

// A body of one result.
Body unary_body(Expr (*f)(Expr));
Body binary_body(Expr (*f)(Expr, Expr));

std::vector<Sample> one_operand_samples();
std::vector<Sample> saturating_samples();   // and numbers where functions have long gone flat
std::vector<Sample> two_operand_samples();  // all ways of stretching one operand
std::vector<Sample> two_operand_refusals();
std::vector<Sample> no_operand_refusal();

}  // namespace adjoint
