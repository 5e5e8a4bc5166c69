#include "device/cuda_check.h"
#include "device/gpu.h"

namespace adjoint {

namespace {

// A hash of the place: the same numbers every time.
__device__ unsigned mixed(unsigned long long i) {
  i *= 0x9E3779B97F4A7C15ull;
  i ^= i >> 32;
  i *= 0xBF58476D1CE4E5B9ull;
  return static_cast<unsigned>(i >> 32);
}

// Either half of a word is a number of 16 bits, sign and fraction random and the size below 2, and
// so is the whole of it.
__device__ unsigned number_in_any_dtype(unsigned random) {
  return (random & 0x807f807fu) | 0x3f003f00u;
}

__global__ void write_noise(uint4* to, size_t count) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const unsigned long long first = 4ull * i;
    to[i] = {number_in_any_dtype(mixed(first)), number_in_any_dtype(mixed(first + 1)),
             number_in_any_dtype(mixed(first + 2)), number_in_any_dtype(mixed(first + 3))};
  }
}

}  // namespace

void GpuStream::fill_with_noise(void* to, Bytes size) {
  const auto count = static_cast<size_t>(size.count) / sizeof(uint4);
  if (count == 0) return;
  write_noise<<<2048, 256, 0, static_cast<cudaStream_t>(stream_)>>>(static_cast<uint4*>(to), count);
  check_cuda(cudaGetLastError(), "filling memory");
}

}  // namespace adjoint
