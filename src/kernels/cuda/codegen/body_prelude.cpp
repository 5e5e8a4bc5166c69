// What every generated kernel begins with: 16-bit floats, chunks, functions that are as good as
// float32 is and cheaper than CUDA's own, reductions over a group of threads, Philox.
#include "kernels/cuda/codegen/body_prelude.h"

namespace adjoint {

std::string_view cuda_instructions() {
  return R"(
// As in kernels/cuda/elements.cuh.
__device__ inline void await_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline float from_f16(unsigned short a) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(a));
  return y;
}
// Two at once, rounded to nearest even.
__device__ inline unsigned int to_bf16s(float upper, float lower) {
  unsigned int y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(upper), "f"(lower));
  return y;
}
__device__ inline unsigned int to_f16s(float upper, float lower) {
  unsigned int y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(upper), "f"(lower));
  return y;
}
__device__ inline float divide(float a, float b) {
  float y;
  asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float root(float a) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}
// Tiny results become 0: of what these two are for, 1 is added to one, and the other is at most 1.
__device__ inline float inverse(float a) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}
__device__ inline float power_of_two(float a) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}
)";
}

std::string_view cuda_prelude() {
  return R"(
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };

__device__ inline float get(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ inline float get(f16 x) { return from_f16(x.bits); }
template <class T> __device__ inline real get(T x) { return (real)x; }

// Two at once, the first in the lower half.
template <class T> struct Halves;
template <> struct Halves<bf16> {
  static __device__ inline u32 of(real a, real b) { return to_bf16s((float)b, (float)a); }
  static __device__ inline float get(u32 x, bool upper) {
    return __uint_as_float(upper ? x & 0xffff0000u : x << 16);
  }
};
template <> struct Halves<f16> {
  static __device__ inline u32 of(real a, real b) { return to_f16s((float)b, (float)a); }
  static __device__ inline float get(u32 x, bool upper) {
    return ::get(f16{(unsigned short)(upper ? x >> 16 : x)});
  }
};

template <class T> struct To { static __device__ inline T of(real x) { return (T)x; } };
template <> struct To<bf16> {
  static __device__ inline bf16 of(real x) { return {(unsigned short)Halves<bf16>::of(x, 0)}; }
};
template <> struct To<f16> {
  static __device__ inline f16 of(real x) { return {(unsigned short)Halves<f16>::of(x, 0)}; }
};
template <class T> struct Rounded {
  static __device__ inline real of(real x) { return get(To<T>::of(x)); }
};
// The upper half of a float32 is a bfloat16.
template <> struct Rounded<bf16> {
  static __device__ inline real of(real x) { return __uint_as_float(Halves<bf16>::of(0, x)); }
};
template <class T> __device__ inline real rounded(real x) { return Rounded<T>::of(x); }

// Eight elements; 16-bit ones in words, from which each is taken by one instruction.
template <class T> struct alignas(sizeof(T) * 8 < 16 ? sizeof(T) * 8 : 16) Chunk {
  T at[8];
  __device__ inline void put(int v, T x) { at[v] = x; }
  __device__ inline T element(int v) const { return at[v]; }
  __device__ inline real get(int v) const { return ::get(at[v]); }
  static __device__ inline Chunk of(const real (&x)[8]) {
    Chunk c;
#pragma unroll
    for (int v = 0; v < 8; ++v) c.at[v] = To<T>::of(x[v]);
    return c;
  }
};
template <class T> struct alignas(16) HalvesChunk {
  u32 words[4];
  __device__ inline void put(int v, T x) { words[v / 2] |= (u32)x.bits << v % 2 * 16; }
  __device__ inline T element(int v) const { return {(unsigned short)(words[v / 2] >> v % 2 * 16)}; }
  __device__ inline real get(int v) const { return Halves<T>::get(words[v / 2], v % 2); }
  static __device__ inline Chunk<T> of(const real (&x)[8]) {
    Chunk<T> c;
#pragma unroll
    for (int w = 0; w < 4; ++w) c.words[w] = Halves<T>::of(x[2 * w], x[2 * w + 1]);
    return c;
  }
};
template <> struct Chunk<bf16> : HalvesChunk<bf16> {};
template <> struct Chunk<f16> : HalvesChunk<f16> {};

// Elements [0, n) of a chunk; all eight by wide moves where they are known to be there.
template <bool whole, class T> __device__ inline Chunk<T> load(const T* from, i64 stride, int n) {
  if constexpr (whole) return *(const Chunk<T>*)from;
  Chunk<T> c = {};
#pragma unroll
  for (int v = 0; v < 8; ++v) if (v < n) c.put(v, from[v * stride]);
  return c;
}
template <bool whole, class T>
__device__ inline void store(T* to, i64 stride, int n, const Chunk<T>& c) {
  if constexpr (whole) {
    *(Chunk<T>*)to = c;
    return;
  }
#pragma unroll
  for (int v = 0; v < 8; ++v) if (v < n) to[v * stride] = c.element(v);
}

__device__ inline double divide(double a, double b) { return a / b; }
__device__ inline double root(double a) { return sqrt(a); }
__device__ inline double fexp(double a) { return exp(a); }
__device__ inline float fexp(float a) { return expf(a); }
__device__ inline double flog(double a) { return log(a); }
__device__ inline float flog(float a) { return logf(a); }
__device__ inline double ferf(double a) { return erf(a); }
__device__ inline float ferf(float a) { return erff(a); }
__device__ inline double fsin(double a) { return sin(a); }
__device__ inline float fsin(float a) { return sinf(a); }
__device__ inline double fcos(double a) { return cos(a); }
__device__ inline float fcos(float a) { return cosf(a); }
__device__ inline double whole_near(double a) { return rint(a); }
__device__ inline float whole_near(float a) { return rintf(a); }
__device__ inline double sigmoid(double a) { return 1 / (1 + exp(-a)); }
// e^-a as a power of two: its error grows with |a|, and is small beside the 1 or in a tiny result.
__device__ inline float sigmoid(float a) { return inverse(1 + power_of_two(a * -1.44269504f)); }
__device__ inline double ftanh(double a) { return tanh(a); }
// 1 - 2 / (1 + e^2a), and near 0, where that cancels, a series.
__device__ inline float ftanh(float a) {
  const float s = a * a;
  const float series = __fmaf_rn(s, __fmaf_rn(s, __fmaf_rn(s, 0.0218694885f, -0.0539682540f), 0.133333333f), -0.333333333f);
  const float small = __fmaf_rn(a * s, series, a);
  const float large = __fmaf_rn(-2, inverse(1 + power_of_two(fabsf(a) * 2.88539008f)), 1);
  return fabsf(a) < 0.25f ? small : copysignf(large, a);
}

__device__ inline real sum_op(real a, real b) { return a + b; }
__device__ inline real max_op(real a, real b) { return a < b ? b : a; }

__device__ inline u64 random_key(u64 path, u64 seed) {
  u64 h = path ^ (seed * 0x9E3779B97F4A7C15ull);
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9ull;
  return h ^ (h >> 32);
}
struct Words { u32 at[4]; };
__device__ inline Words philox(u64 index, u64 step, u64 key) {
  u32 c0 = (u32)index, c1 = (u32)(index >> 32), c2 = (u32)step, c3 = (u32)(step >> 32);
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    const u32 n0 = (u32)(p1 >> 32) ^ c1 ^ k0, n2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c1 = (u32)p1, c3 = (u32)p0, c0 = n0, c2 = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}
// Eight uniform numbers of a stream from element `first` on.
struct Uniforms {
  real at[8];
  __device__ inline Uniforms(u64 first, u64 step, u64 key) {
    const int skip = (int)(first % 4);
    u32 words[12];
#pragma unroll
    for (int b = 0; b < 3; ++b) {
      if (b == 2 && skip == 0) break;
      const Words w = philox(first / 4 + b, step, key);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[b * 4 + i] = w.at[i];
    }
#pragma unroll
    for (int v = 0; v < 8; ++v) {
      u32 bits = words[v];
#pragma unroll
      for (int s = 1; s < 4; ++s) if (skip == s) bits = words[v + s];
      at[v] = (real)(bits >> 8) * (real)5.9604644775390625e-8;
    }
  }
};
)";
}

}  // namespace adjoint
