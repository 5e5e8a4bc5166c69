#include "ops/layout.h"

namespace adjoint {

bool lies_densely(const Type& type, const Strides& strides) {
  const Strides dense = dense_strides(type);
  for (int a = 0; a < type.rank(); ++a) {
    if (type.dim(a) > 1 && strides[a] != dense[a]) return false;
  }
  return true;
}

}  // namespace adjoint
