// The axes that slices, pads and joins speak of, and their letters in index maps.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// Letters for all axes but the last `untouched`, for index maps.
std::string leading_letters(const Type& type, int untouched);
// Letters for all axes but one, which no split may touch.
std::string letters_but(const Type& type, int axis);

// slice and pad are told the same, `size` elements from `start` along `axis`, and each is the
// other's gradient. The last axis is not written, so that it is the default.
Attrs slice_attrs(int rank, int axis, int64_t start, int64_t size);
int slice_axis(const OpCall& call);
std::vector<Param> slice_params();
std::vector<Value> slice_surface(SurfaceCall& call, std::string_view op);
IndexMap slice_letters(const OpCall& call, bool pads);
// The operand's gradient is the result's, brought to the operand's size by the other op.
void slice_gradient(GradCall& grad, std::string_view other);

// Where in its result concat lays the first element of each operand, an index per axis; nothing for
// a call of another op.
std::optional<std::vector<std::vector<int64_t>>> operand_starts(const Scheme& scheme,
                                                                const Morphism& morphism);
// The axis that slice, pad or concat speaks of; Error when there is none such.
int axis_attr(const OpCall& call, int otherwise);

}  // namespace adjoint
