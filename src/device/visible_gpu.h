// Which GPU a process takes where several processes of a machine have one each. CUDA reads
// CUDA_VISIBLE_DEVICES when it starts, so a process says there which one is its own, and all its
// threads find that one as the first.
#pragma once
#include <optional>
#include <string>

namespace adjoint {

// What the variable must say for process `number` of `processes` on this machine; nothing where it
// stays as it is. `visible` is what it says now. An Error where it names too few.
std::optional<std::string> visible_gpu(const std::optional<std::string>& visible, int number,
                                       int processes);

// Sets the variable accordingly, and opens the GPU; before anything else opens it.
void take_gpu(int number, int processes);

}  // namespace adjoint
