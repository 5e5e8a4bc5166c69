// The version of the program, as --version and a run's folder tell it.
#pragma once

namespace adjoint {

constexpr const char* kVersion = "0.1.0";

}  // namespace adjoint
