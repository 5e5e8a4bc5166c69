// The same values in another dtype. Gradients go back in the operand's own dtype.
#include "base/error.h"
#include "ops/samples.h"

namespace adjoint {

extern const OpDef op_cast = {
    .name = "cast",
    .summary = "the same values in another dtype",
    .body =
        [](const OpCall& call) {
          const auto dtype = dtype_named(call.text("dtype"));
          if (!dtype) fail("cast: '", call.text("dtype"), "' is no dtype");
          Body body;
          body.outputs = {{.node = input(body, 0).node, .dtype = dtype}};
          return body;
        },
    .says_dtype = true,
    // Only to what holds as much: a sum is rounded once.
    .linear =
        [](const OpCall& call) {
          const auto to = dtype_named(call.text("dtype"));
          const bool holds = to && is_float(*to) && size_of(call.inputs[0].dtype) <= size_of(*to);
          return holds ? Linear::kTogether : Linear::kNo;
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 5})}, .attrs = {{"dtype", std::string("bf16")}}},
              {.inputs = {of({7})}, .attrs = {{"dtype", std::string("f16")}}},
              {.inputs = {of({7})}, .attrs = {{"dtype", std::string("f32")}}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3})}, .attrs = {{"dtype", std::string("f31")}}}};
        },
};

}  // namespace adjoint
