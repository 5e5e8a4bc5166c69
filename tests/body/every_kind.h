// A call of every kind of expression that works on elements or rows of operands alone.
#pragma once

namespace adjoint {

inline constexpr const char* kEveryKind[] = {
    "add(x0, x1)",  "sub(x0, x1)",   "mul(x0, x1)", "div(x0, x1)", "min(x0, x1)", "max(x0, x1)",
    "less(x0, x1)", "equal(x0, x1)", "neg(x0)",     "exp(x0)",     "log(x0)",     "sqrt(x0)",
    "tanh(x0)",     "sigmoid(x0)",   "erf(x0)",     "sin(x0)",     "cos(x0)",     "finite(x0)",
    "whole(x0)",    "round2(x0)",    "rowsum(x0)",  "rowmax(x0)"};

}  // namespace adjoint
