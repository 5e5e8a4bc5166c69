// 0, 1, 2, ... as ids, for position embeddings; where an operand says so, from an origin on.
#include "ops/carry.h"
#include "ops/samples.h"
#include "ops/shape_attr.h"

namespace adjoint {

extern const OpDef op_positions = {
    .name = "positions",
    .summary = "0, 1, 2, ... along one axis",
    .body =
        [](const OpCall& call) {
          const int before = axes_before_positions(call);
          if (static_cast<int>(call.list("shape").size()) != before + 1) {
            fail("positions: wants one axis");
          }
          Body body;
          body.outputs = {{.node = counted_position(body, call, 0).node, .dtype = Dtype::kI32}};
          return body;
        },
    .space = shape_attr,
    .differentiable = false,
    .carry = carry_counted_positions,
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{7}}}},
                                     {.inputs = {of({3, 1}, Dtype::kI32)},
                                      .attrs = {{"shape", std::vector<int64_t>{3, 5}}},
                                      .fills = {Sample::Fill::kIds},
                                      .ids_below = 9}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {}},
              {.inputs = {of({3, 2}, Dtype::kI32)},
               .attrs = {{"shape", std::vector<int64_t>{3, 5}}}},
              {.inputs = {of({3, 1})}, .attrs = {{"shape", std::vector<int64_t>{3, 5}}}}};
        },
};

}  // namespace adjoint
