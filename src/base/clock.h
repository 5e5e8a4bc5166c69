// The time of day, as other programs write it.
#pragma once
#include <chrono>

namespace adjoint {

inline double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace adjoint
