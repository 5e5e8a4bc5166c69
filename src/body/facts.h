// What is known of a body without running it.
#pragma once
#include <optional>

#include "body/body.h"

namespace adjoint {

// Whether each element of a result depends on the same element of the operands alone: neither on
// its position nor on random numbers.
bool is_elementwise(const Body& body);
// Whether every result is a single number, a sum over everything, and nothing is random.
bool makes_single_numbers(const Body& body);
// Whether, besides, each of these sums adds up a function of single elements.
bool adds_elements(const Body& body);
// Whether every result is 0 where all operands are, so that zeros that pad them add nothing.
bool vanishes_at_zero(const Body& body);
// The same where only some operands are 0.
bool vanishes_where(const Body& body, const std::vector<bool>& operands);
// What each output is along one row of which the operands are these numbers: one each for every
// place of the row, or one for all of them. Random numbers are 0.5, and nothing is rounded.
std::vector<std::vector<double>> results_of_row(const Body& body,
                                                const std::vector<std::vector<double>>& operands);
// Whether it neither sums over leading axes nor draws random numbers, so that its pieces may run in
// any order.
bool runs_in_units(const Body& body);
// The operand that an output is as it stands, but for its dtype; nothing where it is computed.
std::optional<int> passed_on(const Body& body, const BodyOutput& out);
// A body of one operand that only stores it in a dtype, maybe another one.
bool is_cast(const Body& body);
// The sum of its two operands, element by element.
bool adds_operands(const Body& body);
// Whether this output is a sum over leading axes.
bool is_sum(const BodyOutput& out);

// The strides of an operand of type `type` along each axis of `space`, 0 where it is stretched.
Strides stretch(const Strides& strides, const Type& type, const std::vector<Axis>& space);
// The strides of an output, 0 along the axes that it sums or drops.
Strides stretch_output(const Strides& strides, const BodyOutput& output, size_t space_rank);

}  // namespace adjoint
