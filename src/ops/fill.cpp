// A constant object: the seed of a gradient, a start of zeros.
#include "ops/samples.h"
#include "ops/shape_attr.h"

namespace adjoint {

extern const OpDef op_fill = {
    .name = "fill",
    .summary = "the same value everywhere",
    .body =
        [](const OpCall& call) {
          Body body;
          body.outputs = {
              {.node = constant(body, call.number("value")).node, .dtype = dtype_attr(call)}};
          return body;
        },
    .space = shape_attr,
    .differentiable = false,
    .says_dtype = true,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{3, 5}}, {"value", 1.5}}},
              {.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{}}, {"value", 1.0}}}};
        },
    .refused = [] { return std::vector<Sample>{{.inputs = {}}}; },
};

}  // namespace adjoint
