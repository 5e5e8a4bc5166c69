// Copies, where a view cannot say it.
#include "kernels/cpu/copy.h"

namespace adjoint {

extern const Kernel cpu_squeeze = {
    .op = "squeeze",
    .prepare = prepare_reshape,
};

extern const Kernel cpu_unsqueeze = {
    .op = "unsqueeze",
    .prepare = prepare_reshape,
};

}  // namespace adjoint
