#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "comm/gpu_reduction.h"
#include "device/cuda_check.h"
#include "device/gpu.h"

namespace adjoint {

namespace {

struct Terms {
  const void* at[kMostGpuTerms];
  int count;
};

// 16-bit floats as base/half.h has them: the conversions of CUDA round the same, but the header's
// are the host's alone.
struct DeviceBF16 {
  unsigned short bits;
};
struct DeviceF16 {
  unsigned short bits;
};

template <class T>
__device__ T widened(T x) {
  return x;
}
__device__ float widened(DeviceBF16 x) { return __uint_as_float(unsigned{x.bits} << 16); }
__device__ float widened(DeviceF16 x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}

template <class T>
struct Narrow {
  template <class A>
  __device__ static T from(A x) {
    return static_cast<T>(x);
  }
};
template <>
struct Narrow<DeviceBF16> {
  __device__ static DeviceBF16 from(float x) {
    const unsigned u = __float_as_uint(x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    const unsigned bits = nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return {static_cast<unsigned short>(bits)};
  }
};
template <>
struct Narrow<DeviceF16> {
  __device__ static DeviceF16 from(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return {bits};
  }
};

// Integers wrap where they are unsigned.
template <class T>
struct Sum {
  template <class A>
  __device__ static A join(A sum, A term) {
    return sum + term;
  }
};
template <>
struct Sum<long long> {
  __device__ static long long join(long long sum, long long term) {
    return static_cast<long long>(static_cast<unsigned long long>(sum) +
                                  static_cast<unsigned long long>(term));
  }
};
template <>
struct Sum<int> {
  __device__ static int join(int sum, int term) {
    return static_cast<int>(static_cast<unsigned>(sum) + static_cast<unsigned>(term));
  }
};

template <class T>
struct Most {
  template <class A>
  __device__ static A join(A most, A term) {
    return term > most || term != term ? term : most;
  }
};

// One element: terms in order, rounded once.
template <class T, class Join>
__device__ T joined(const Terms& terms, int64_t i) {
  auto sum = widened(static_cast<const T*>(terms.at[0])[i]);
  for (int k = 1; k < terms.count; ++k) {
    sum = Join::join(sum, widened(static_cast<const T*>(terms.at[k])[i]));
  }
  return Narrow<T>::from(sum);
}

// What one load brings.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

// A thread adds packs of 16 bytes, all terms of one before the next; what is left over, one by one.
template <class T, class Join>
__global__ void reduce_packs(Terms terms, int64_t packs, int64_t count, T* to) {
  using A = decltype(widened(T{}));
  constexpr int kSize = Pack<T>::kSize;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < packs; i += step) {
    A sums[kSize];
    for (int k = 0; k < terms.count; ++k) {
      const Pack<T> term = static_cast<const Pack<T>*>(terms.at[k])[i];
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const A wide = widened(term.at[j]);
        sums[j] = k == 0 ? wide : Join::join(sums[j], wide);
      }
    }
    Pack<T> result;
#pragma unroll
    for (int j = 0; j < kSize; ++j) result.at[j] = Narrow<T>::from(sums[j]);
    reinterpret_cast<Pack<T>*>(to)[i] = result;
  }
  for (int64_t i = packs * kSize + first; i < count; i += step) to[i] = joined<T, Join>(terms, i);
}

template <class T>
void launch(Reduction reduction, const Terms& terms, int64_t count, std::byte* to, void* stream) {
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  const bool packed = aligned(to) && std::all_of(terms.at, terms.at + terms.count, aligned);
  const int64_t packs = packed ? count / Pack<T>::kSize : 0;
  constexpr int kThreads = 256, kMostBlocks = 2048;
  const int64_t work = std::max<int64_t>(packs, count - packs * Pack<T>::kSize);
  const int blocks =
      static_cast<int>(std::clamp<int64_t>((work + kThreads - 1) / kThreads, 1, kMostBlocks));
  T* typed = reinterpret_cast<T*>(to);
  if (reduction == Reduction::kSum) {
    reduce_packs<T, Sum<T>>
        <<<blocks, kThreads, 0, cuda_stream(stream)>>>(terms, packs, count, typed);
  } else {
    reduce_packs<T, Most<T>>
        <<<blocks, kThreads, 0, cuda_stream(stream)>>>(terms, packs, count, typed);
  }
  check_cuda(cudaGetLastError(), "adding what ranks sent");
}

}  // namespace

void reduce_on_gpu(Reduction reduction, Dtype dtype, std::span<const std::byte* const> terms,
                   int64_t count, std::byte* to, void* stream) {
  CHECK(!terms.empty() && terms.size() <= kMostGpuTerms, "a sum has 1 to 256 terms");
  if (count == 0) return;
  if (terms.size() == 1) {
    if (to != terms[0]) {
      check_cuda(cudaMemcpyAsync(to, terms[0], count * size_of(dtype).count,
                                 cudaMemcpyDeviceToDevice, cuda_stream(stream)),
                 "copying what one rank has");
    }
    return;
  }
  Terms parameters = {};
  for (const std::byte* term : terms) parameters.at[parameters.count++] = term;
  switch (dtype) {
    case Dtype::kF64:
      return launch<double>(reduction, parameters, count, to, stream);
    case Dtype::kF32:
      return launch<float>(reduction, parameters, count, to, stream);
    case Dtype::kBF16:
      return launch<DeviceBF16>(reduction, parameters, count, to, stream);
    case Dtype::kF16:
      return launch<DeviceF16>(reduction, parameters, count, to, stream);
    case Dtype::kI64:
      return launch<long long>(reduction, parameters, count, to, stream);
    case Dtype::kI32:
      return launch<int>(reduction, parameters, count, to, stream);
    case Dtype::kI8:
      return launch<signed char>(reduction, parameters, count, to, stream);
    case Dtype::kU8:
      return launch<unsigned char>(reduction, parameters, count, to, stream);
  }
}

namespace {

bool is_of_gpu(const void* at) {
  cudaPointerAttributes found = {};
  check_cuda(cudaPointerGetAttributes(&found, at), "finding whose memory this is");
  return found.type == cudaMemoryTypeDevice;
}

}  // namespace

DeviceMemory gpu_memory() {
  // Every rank moves its bytes on a thread of its own, and so on a stream of its own.
  static const auto stream = []() -> GpuStream& {
    static thread_local const auto own = std::make_unique<GpuStream>();
    return *own;
  };
  return {.copy =
              [](std::byte* to, const std::byte* from, int64_t size) {
                if (!is_of_gpu(to) && !is_of_gpu(from)) {
                  std::memcpy(to, from, static_cast<size_t>(size));
                  return;
                }
                stream().copy(to, from, {size});
                stream().synchronize();
              },
          .reduce =
              [](Reduction reduction, Dtype dtype, std::span<const std::byte* const> terms,
                 int64_t count, std::byte* to) {
                if (!is_of_gpu(to)) return reduce_in_order(reduction, dtype, terms, count, to);
                reduce_on_gpu(reduction, dtype, terms, count, to, stream().handle());
                stream().synchronize();
              }};
}

}  // namespace adjoint
