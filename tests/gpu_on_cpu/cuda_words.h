// CUDA's keywords and intrinsics in C++: all that generated kernels use and a host compiler does
// not know. Blocks run one after another, so shared memory can be static.
#pragma once
#include <bit>
#include <cmath>

#include "base/half.h"
#include "gpu_on_cpu/machine.h"

extern "C" adjoint::KernelMachine* machine;

#define __device__
#define __global__
#define __launch_bounds__(threads)
#define __shared__ static
#define threadIdx machine->thread
#define blockIdx machine->block
#define gridDim machine->grid

using std::isfinite;

inline void __syncthreads() { machine->meet_block(); }
inline void __syncwarp(unsigned mask) { machine->meet_warp(mask); }
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int distance) {
  return static_cast<T>(machine->exchange(mask, distance, x));
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

// Replace cuda_instructions(). These round correctly; a GPU's are slightly less exact.
inline void await_earlier() {}
inline float from_f16(unsigned short bits) {
  adjoint::Float16 half;
  half.bits = bits;
  return half;
}
template <class Half>
unsigned two_halves(float upper, float lower) {
  return static_cast<unsigned>(Half(upper).bits) << 16 | Half(lower).bits;
}
inline unsigned to_bf16s(float a, float b) { return two_halves<adjoint::BFloat16>(a, b); }
inline unsigned to_f16s(float a, float b) { return two_halves<adjoint::Float16>(a, b); }
inline float divide(float a, float b) { return a / b; }
inline float root(float a) { return std::sqrt(a); }
inline float inverse(float a) { return 1 / a; }
inline float power_of_two(float a) { return std::exp2(a); }
