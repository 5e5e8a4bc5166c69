// The device that a plan is for. It determines kernels, their workspaces, and the memory of the
// arenas.
#pragma once
#include <cstdint>
#include <string_view>

namespace adjoint {

enum class Target : uint8_t { kCpu, kCuda };
constexpr std::string_view name(Target target) { return target == Target::kCpu ? "cpu" : "cuda"; }

}  // namespace adjoint
