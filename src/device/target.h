// Whose kernels a plan is for: their workspaces differ, and so do the memories of its arenas.
#pragma once
#include <cstdint>
#include <string_view>

namespace adjoint {

enum class Target : uint8_t { kCpu, kCuda };
constexpr std::string_view name(Target target) { return target == Target::kCpu ? "cpu" : "cuda"; }

}  // namespace adjoint
