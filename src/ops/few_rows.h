// An attribute of row ops. How a row is summed depends on its length alone, so that a part of a
// batch has the bits of the whole; where a call has this attribute, which is 1, it may also depend
// on there being few rows.
#pragma once
#include <string_view>

namespace adjoint {

inline constexpr std::string_view kFewRows = "few_rows";

}  // namespace adjoint
