// 0, 1, 2, ... along one axis of an object, with axes of size 1 behind it: what masks and biases by
// position are made of. It is no larger than the axis, and depends on nothing. Where an operand
// says so, every sample counts from an origin on.
#include "base/error.h"
#include "ops/carry.h"
#include "ops/samples.h"
#include "ops/shape_attr.h"
#include "ops/surface.h"

namespace adjoint {

extern const OpDef op_index = {
    .name = "index",
    .summary = "0, 1, 2, ... along an axis of x, to be stretched over the others",
    .params = {{"x"}, {"axis", Param::Kind::kAxis}},
    .surface =
        [](SurfaceCall& call) {
          const Type& x = call.type("x");
          const int64_t axis = call.size("axis");
          std::vector<int64_t> shape(x.rank() - axis, 1);
          shape[0] = x.dim(static_cast<int>(axis));
          const Axis along = x.axes[static_cast<size_t>(axis)];
          const Value made = call.builder.emit("index", {}, {{"shape", shape}});
          // What it is added to keeps its label: index(x, seq) + x has an axis `seq` again.
          call.builder.scheme()[made].type.axes[0].name = along.name;
          return std::vector<Value>{made};
        },
    .body =
        [](const OpCall& call) {
          const std::vector<int64_t> shape = call.list("shape");
          if (shape.empty()) fail("index: wants an axis");
          const int counted = axes_before_positions(call);
          for (size_t i = counted + 1; i < shape.size(); ++i) {
            if (shape[i] != 1) fail("index: counts along the first axis, the others have size 1");
          }
          Body body;
          const int from_end = static_cast<int>(shape.size()) - 1 - counted;
          const Expr at = counted_position(body, call, from_end);
          body.outputs = {{.node = at.node, .dtype = dtype_attr(call)}};
          return body;
        },
    .space = shape_attr,
    .differentiable = false,
    .says_dtype = true,
    .carry = carry_counted_positions,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{7}}}},
              {.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{5, 1, 1}}}},
              {.inputs = {of({2, 1, 1}, Dtype::kI32)},
               .attrs = {{"shape", std::vector<int64_t>{2, 5, 1}}},
               .fills = {Sample::Fill::kIds},
               .ids_below = 9}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {}},
              {.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{5, 2}}}},
              {.inputs = {of({2}, Dtype::kI32)},
               .attrs = {{"shape", std::vector<int64_t>{2, 5, 1}}}}};
        },
};

}  // namespace adjoint
