// 0, 1, 2, ... as ids, for position embeddings.
#include "ops/samples.h"
#include "ops/shape_attr.h"

namespace adjoint {

extern const OpDef op_positions = {
    .name = "positions",
    .summary = "0, 1, 2, ... along one axis",
    .body =
        [](const OpCall& call) {
          if (call.list("shape").size() != 1) fail("positions: wants one axis");
          Body body;
          body.outputs = {{.node = index_along(body, 0).node, .dtype = Dtype::kI32}};
          return body;
        },
    .space = shape_attr,
    .differentiable = false,
    .samples =
        [] {
          return std::vector<Sample>{{.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{7}}}}};
        },
    .refused = [] { return std::vector<Sample>{{.inputs = {}}}; },
};

}  // namespace adjoint
