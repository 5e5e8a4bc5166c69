// sum(x^2), one number: a tensor's part of the global norm.
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_square_sum = {
    .name = "square_sum",
    .summary = "sum of squares, one number",
    .body =
        [](const OpCall& call) {
          Body body;
          const Expr x = input(body, 0);
          const int rank = call.inputs.empty() ? 0 : call.inputs[0].rank();
          const bool wide = !call.inputs.empty() && call.inputs[0].dtype == Dtype::kF64;
          const Dtype dtype = wide ? Dtype::kF64 : Dtype::kF32;
          body.outputs = {{.node = row_sum(x * x).node,
                           .summed_axes = std::max(0, rank - 1),
                           .row = BodyOutput::Row::kDropped,
                           .dtype = dtype}};
          return body;
        },
    .samples = one_operand_samples,
    .refused = no_operand_refusal,
};

}  // namespace adjoint
