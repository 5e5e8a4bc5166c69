#include "comm/wire.h"

#include <cstring>

namespace adjoint {

void Wire::copy(std::byte* to, const std::byte* from, int64_t size) {
  std::memmove(to, from, size);
}

void Wire::reduce(Reduction reduction, Dtype dtype, std::span<const std::byte* const> terms,
                  int64_t count, std::byte* to) {
  reduce_in_order(reduction, dtype, terms, count, to);
}

}  // namespace adjoint
