// The one order of sums. Whatever algorithm moved them, the terms of all ranks are added here, on
// one rank, in rank order 0..n-1, and rounded once: so neither bucket, message size nor algorithm
// changes a bit of a result.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "scheme/type.h"

namespace adjoint {

enum class Reduction : uint8_t { kSum, kMax };
std::string_view name(Reduction reduction);  // "sum"

// to[i] = terms[0][i] + terms[1][i] + ... : f64 in f64, the other floats in float32, integers as
// they wrap. A maximum is NaN where a term is. `to` may be one of the terms.
void reduce_in_order(Reduction reduction, Dtype dtype, std::span<const std::byte* const> terms,
                     int64_t count, std::byte* to);

}  // namespace adjoint
