#include "ops/axes.h"

#include "base/error.h"
#include "ops/builder.h"
#include "ops/surface.h"

namespace adjoint {

std::string leading_letters(const Type& type, int untouched) {
  std::string letters;
  for (int i = 0; i + untouched < type.rank(); ++i) letters += static_cast<char>('a' + i);
  return letters;
}

std::string letters_but(const Type& type, int axis) {
  std::string letters = leading_letters(type, 0);
  letters[axis] = '.';
  return letters;
}

Attrs slice_attrs(int rank, int axis, int64_t start, int64_t size) {
  Attrs attrs = {{"start", start}, {"size", size}};
  if (axis != rank - 1) attrs["axis"] = int64_t{axis};
  return attrs;
}

int slice_axis(const OpCall& call) { return axis_attr(call, call.inputs[0].rank() - 1); }

std::vector<Param> slice_params() {
  return {{"x"},
          {"start", Param::Kind::kSize},
          {"size", Param::Kind::kSize},
          {"axis", Param::Kind::kAxis, "-1"}};
}

std::vector<Value> slice_surface(SurfaceCall& call, std::string_view op) {
  const int rank = call.type("x").rank(), axis = static_cast<int>(call.size("axis"));
  return {call.builder.emit(op, {call.tensor("x")},
                            slice_attrs(rank, axis, call.size("start"), call.size("size")))};
}

IndexMap slice_letters(const OpCall& call, bool pads) {
  const int axis = slice_axis(call);
  const std::string letters = letters_but(call.inputs[0], axis);
  // What is before, the slice, and what is behind it, where there is any.
  const int64_t start = call.integer("start"), size = call.integer("size");
  const int64_t operand = call.inputs[0].dim(axis);
  const int64_t within = pads ? operand : size, all = pads ? size : operand;
  IndexMap map{{letters}, {letters}};
  map.counts = {{"start", "."}, {"size", "."}};
  std::vector<int> numbers;
  int slice = 0;
  for (const auto& [length, is_slice] :
       {std::pair{start, false}, {within, true}, {all - start - within, false}}) {
    if (length == 0) continue;
    if (is_slice) slice = static_cast<int>(numbers.size());
    numbers.push_back(static_cast<int>(numbers.size()));
    map.beside.sizes.push_back(length);
  }
  map.beside.inputs = {pads ? std::vector{slice} : numbers};
  map.beside.outputs = {pads ? numbers : std::vector{slice}};
  return map;
}

void slice_gradient(GradCall& g, std::string_view other) {
  const Type& x = g.call.inputs[0];
  const int axis = slice_axis(g.call);
  g.input_grads[0] = g.builder.emit(
      other, {g.dout()}, slice_attrs(x.rank(), axis, g.call.integer("start"), x.dim(axis)));
}

int axis_attr(const OpCall& call, int otherwise) {
  const int rank = call.inputs[0].rank();
  const int64_t axis = call.integer("axis", otherwise);
  if (axis < 0 || axis >= rank) {
    fail(call.op, ": axis ", axis, " is not one of the ", rank, " axes of ",
         shape_string(call.inputs[0]));
  }
  return static_cast<int>(axis);
}

}  // namespace adjoint
