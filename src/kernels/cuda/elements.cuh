// What the CUDA kernels share: elements of every dtype, 16 bytes at once, and launches that are
// checked.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "device/cuda_check.h"
#include "scheme/elements.h"

namespace adjoint {

__device__ inline double widen(double x) { return x; }
__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widen(__half x) { return __half2float(x); }

template <class T>
__device__ T narrow(typename Wide<T>::type x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

// 16 bytes of elements, which are loaded and stored at once.
template <class T>
inline constexpr int kPackSize = 16 / sizeof(T);

template <class T>
struct Pack {
  uint4 bits;

  using W = typename Wide<T>::type;
  __device__ void widen_to(W (&x)[kPackSize<T>]) const {
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int k = 0; k < kPackSize<T>; ++k) {
      if constexpr (std::is_same_v<T, double>) {
        x[k] = __hiloint2double(static_cast<int>(words[2 * k + 1]), static_cast<int>(words[2 * k]));
      } else if constexpr (std::is_same_v<T, float>) {
        x[k] = __uint_as_float(words[k]);
      } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        x[k] = __uint_as_float(k % 2 ? words[k / 2] & 0xffff0000u : words[k / 2] << 16);
      } else {
        x[k] = __half2float(__ushort_as_half(static_cast<uint16_t>(words[k / 2] >> k % 2 * 16)));
      }
    }
  }
  __device__ static Pack narrowed(const W (&x)[kPackSize<T>]) {
    uint32_t words[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (std::is_same_v<T, double>) {
        words[k] = k % 2 ? __double2hiint(x[k / 2]) : __double2loint(x[k / 2]);
      } else if constexpr (std::is_same_v<T, float>) {
        words[k] = __float_as_uint(x[k]);
      } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        const __nv_bfloat162 both = __floats2bfloat162_rn(x[2 * k], x[2 * k + 1]);
        words[k] = __bfloat16_as_ushort(both.x) |
                   static_cast<uint32_t>(__bfloat16_as_ushort(both.y)) << 16;
      } else {
        const __half2 both = __floats2half2_rn(x[2 * k], x[2 * k + 1]);
        words[k] = __half_as_ushort(both.x) | static_cast<uint32_t>(__half_as_ushort(both.y)) << 16;
      }
    }
    return {make_uint4(words[0], words[1], words[2], words[3])};
  }
};

// One float whose dtype is known when the kernel runs.
template <class W>
__device__ W load_float(const void* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::kF64:
      return static_cast<W>(static_cast<const double*>(data)[i]);
    case Dtype::kF32:
      return static_cast<const float*>(data)[i];
    case Dtype::kBF16:
      return widen(static_cast<const __nv_bfloat16*>(data)[i]);
    default:
      return widen(static_cast<const __half*>(data)[i]);
  }
}
template <class W>
__device__ void store_float(void* data, Dtype dtype, int64_t i, W value) {
  const auto rounded = static_cast<float>(value);
  switch (dtype) {
    case Dtype::kF64:
      static_cast<double*>(data)[i] = value;
      return;
    case Dtype::kF32:
      static_cast<float*>(data)[i] = rounded;
      return;
    case Dtype::kBF16:
      static_cast<__nv_bfloat16*>(data)[i] = narrow<__nv_bfloat16>(rounded);
      return;
    default:
      static_cast<__half*>(data)[i] = narrow<__half>(rounded);
  }
}

// Calls f.template operator()<T>() with the device's type of a floating dtype.
template <class F>
decltype(auto) with_device_type(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::kF64:
      return f.template operator()<double>();
    case Dtype::kF32:
      return f.template operator()<float>();
    case Dtype::kBF16:
      return f.template operator()<__nv_bfloat16>();
    case Dtype::kF16:
      return f.template operator()<__half>();
    default:
      break;
  }
  throw MachineError("a CUDA kernel wants a floating dtype, found " + std::string(name(dtype)));
}

// Calls f.template operator()<U>() with the type of so many bytes, to be moved as they are.
template <class F>
decltype(auto) with_unit(int64_t bytes, const F& f) {
  switch (bytes) {
    case 16:
      return f.template operator()<uint4>();
    case 8:
      return f.template operator()<uint2>();
    case 4:
      return f.template operator()<uint32_t>();
    case 2:
      return f.template operator()<uint16_t>();
    default:
      return f.template operator()<uint8_t>();
  }
}

// Ids are not to be trusted, and a kernel has no way to complain.
__device__ inline int64_t clamp_id(int64_t id, int64_t count) {
  return id < 0 ? 0 : id < count ? id : count - 1;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline bool is_aligned(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}
// The most bytes, 16 at most, that divide all of these sizes and addresses.
inline int64_t widest_unit(std::initializer_list<int64_t> sizes,
                           std::initializer_list<const void*> pointers) {
  int64_t unit = 16;
  for (const int64_t size : sizes) {
    while (size % unit) unit /= 2;
  }
  for (const void* pointer : pointers) {
    while (!is_aligned(pointer, unit)) unit /= 2;
  }
  return unit;
}

// Blocks of 256 threads over rows of columns: threads along x share out the columns, blocks along x
// the rows, of which there are more than a grid's y can count.
struct Tiles {
  dim3 grid, block;
};
inline Tiles tiles_of(int64_t rows, int64_t columns) {
  unsigned x = 1;
  while (x < 256 && x < columns) x *= 2;
  return {.grid = dim3(static_cast<unsigned>(ceil_div(rows, 256 / x)),
                       static_cast<unsigned>(ceil_div(columns, x))),
          .block = dim3(x, 256 / x)};
}

inline cudaStream_t as_stream(void* stream) { return cuda_stream(stream); }

// The end of a kernel and the beginning of the next may overlap (programmatic dependent launch):
// what was launched early has its blocks in place when the kernel before ends. Every kernel that is
// launched early calls this before it reads or writes anything, so that whatever ran before the
// kernel before has ended too. (Reading weights before the wait, into registers or the cache, was
// tried: products of single tokens became slower by a tenth.)
__device__ inline void await_earlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

struct LaunchPlace {
  dim3 grid, block;
  cudaStream_t stream = nullptr;
  bool early = false;  // the kernel calls await_earlier
};
template <class... Parameters, class... Args>
void launch_at(const LaunchPlace& place, const char* what, void (*kernel)(Parameters...),
               const Args&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = place.grid;
  config.blockDim = place.block;
  config.stream = place.stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = place.early ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...), what);
}

inline void check_launch(const char* what) { check_cuda(cudaGetLastError(), what); }

}  // namespace adjoint
