#include "ops/axes.h"

#include "base/error.h"

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
