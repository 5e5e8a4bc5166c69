// cos and sin of position * base^(-2i/dim), for shape [seq, 1, dim]; both halves of a row have the
// same angles.
#include <cmath>

#include "base/error.h"
#include "ops/samples.h"
#include "ops/shape_attr.h"

namespace adjoint {

namespace {

Body body(const OpCall& call) {
  const std::vector<Axis> space = shape_attr(call);
  if (space.size() != 3 || space[2].size % 2) {
    fail("rotary_table: wants shape [seq, 1, dim] with dim even, found ", space.size(), " axes");
  }
  const double half = static_cast<double>(space[2].size) / 2, base = call.number("base");
  if (!(base > 1)) fail("rotary_table: the base must be above 1, found ", base);
  Body body;
  const Expr column = index_along(body, 0);
  const Expr pair = select(less(column, constant(body, half)), column, column - half);
  const Expr frequency = exp(pair * (-std::log(base) / half));
  const Expr angle = index_along(body, 2) * frequency;
  const Dtype dtype = dtype_attr(call);
  body.outputs = {{.node = cos(angle).node, .dtype = dtype},
                  {.node = sin(angle).node, .dtype = dtype}};
  return body;
}

}  // namespace

extern const OpDef op_rotary_table = {
    .name = "rotary_table",
    .summary = "cosines and sines of rotary angles",
    .body = body,
    .space = shape_attr,
    .wide = true,  // made once a step, and angles reach thousands of radians
    .differentiable = false,
    .output_names = {"sin"},
    .says_dtype = true,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{5, 1, 6}}, {"base", 1e4}}}};
        },
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {}, .attrs = {{"shape", std::vector<int64_t>{5, 1, 3}}, {"base", 1e4}}}};
        },
};

}  // namespace adjoint
