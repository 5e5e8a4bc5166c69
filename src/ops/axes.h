// The axes that slices, pads and joins speak of, and their letters in index maps.
#pragma once
#include "ops/op_def.h"

namespace adjoint {

// Letters for all axes but the last `untouched`, for index maps.
std::string leading_letters(const Type& type, int untouched);
// Letters for all axes but one, which no split may touch.
std::string letters_but(const Type& type, int axis);

// What slice and pad are told: `size` elements from `start` along `axis`. The last axis is not
// written, so that it is the default.
Attrs slice_attrs(int rank, int axis, int64_t start, int64_t size);
// Where in its result concat lays the first element of each operand, an index per axis; nothing for
// a call of another op.
std::optional<std::vector<std::vector<int64_t>>> operand_starts(const Scheme& scheme,
                                                                const Morphism& morphism);
// The axis that slice, pad or concat speaks of; Error when there is none such.
int axis_attr(const OpCall& call, int otherwise);

}  // namespace adjoint
