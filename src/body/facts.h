// What can be said of a body without running it.
#pragma once
#include <optional>

#include "body/body.h"

namespace adjoint {

// A function of single elements, and of nothing else: neither of their places nor of random
// numbers.
bool is_elementwise(const Body& body);
// A body that only adds everything up, to single numbers, and draws nothing.
bool makes_single_numbers(const Body& body);
// One of these whose results are sums of a function of each element by itself.
bool adds_elements(const Body& body);
// Neither sums over leading axes nor draws random numbers: pieces of it run in any order.
bool runs_in_units(const Body& body);
// The operand that an output is as it stands, but for its dtype; nothing where it is computed.
std::optional<int> passed_on(const Body& body, const BodyOutput& out);
// A body of one operand that only stores it in a dtype, maybe another one.
bool is_cast(const Body& body);
// The sum of its two operands, element by element.
bool adds_operands(const Body& body);
// Does this output add up over leading axes?
bool is_sum(const BodyOutput& out);

// The strides of an operand of type `type` along each axis of `space`, 0 where it is stretched.
Strides stretch(const Strides& strides, const Type& type, const std::vector<Axis>& space);
// The strides of an output, 0 along the axes that it sums or drops.
Strides stretch_output(const Strides& strides, const BodyOutput& output, size_t space_rank);

}  // namespace adjoint
