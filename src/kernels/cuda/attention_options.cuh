// What options do with the scores of attention, on a GPU: one header for all kernels of our own, so
// that they mean the same. A kernel without options is told NoOptions, and compiles to nothing
// more.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

#include "base/philox.h"
#include "kernels/attention_call.h"

namespace adjoint::attention_tiles {

// The logit of a key that is not seen. Finite, so that a row that has seen none yet has a maximum;
// what it has summed by then is multiplied by 0 when the first one comes.
constexpr float kHidden = -0x1p100f;  // its product with any scale is exact, fused or not

struct NoOptions {
  static constexpr bool kAny = false;
};

// Of a call. Null or 0: nothing of the kind.
struct SomeOptions {
  static constexpr bool kAny = true;

  int window;
  double scale, cap;
  bool alibi;
  int power;  // the largest power of two that is no more than the heads
  const void* bias;
  int64_t bias_head, bias_step;
  int entries;
  const void* sinks;
  int64_t sinks_step;
  const int32_t* segments;
  int64_t segments_sample, segments_step;
  const int64_t* counter;
  uint64_t path;        // the hash of the key of its random numbers
  uint32_t drop_below;  // of 24 random bits
  double kept;
};

inline SomeOptions device_options(const AttentionShape& s, const AttentionExtras& extras) {
  int power = 1;
  while (2 * power <= s.kv_heads * s.group) power *= 2;
  return {.window = static_cast<int>(s.window),
          .scale = s.scale(),
          .cap = s.cap,
          .alibi = s.alibi,
          .power = power,
          .bias = extras.bias,
          .bias_head = extras.bias_head,
          .bias_step = extras.bias_step,
          .entries = static_cast<int>(s.bias),
          .sinks = extras.sinks,
          .sinks_step = extras.sinks_step,
          .segments = extras.segments,
          .segments_sample = extras.segments_sample,
          .segments_step = extras.segments_step,
          .counter = extras.counter,
          .path = stable_hash(extras.key),
          .drop_below = static_cast<uint32_t>(std::ceil(s.dropout * 0x1p24)),
          .kept = 1 / (1 - s.dropout)};
}

template <class T>
__device__ double read_element(const void* data, int64_t i) {
  return static_cast<double>(static_cast<const T*>(data)[i]);
}
template <>
__device__ inline double read_element<__nv_bfloat16>(const void* data, int64_t i) {
  return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
}
template <>
__device__ inline double read_element<__half>(const void* data, int64_t i) {
  return __half2float(static_cast<const __half*>(data)[i]);
}

__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }

// Four words of base/philox.h's RandomStream.
__device__ inline void random_words(uint64_t block, uint64_t step, uint64_t key, uint32_t* word) {
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = static_cast<uint32_t>(step), c3 = static_cast<uint32_t>(step >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

// The options of one head of one sample, of elements T, computed in W.
template <class T, class W>
struct HeadOptions {
  int window, length, entries;
  bool causal;
  W scale, cap, one_by_cap, slope, kept;
  const void* bias;
  int64_t bias_step;
  const int32_t* segments;
  int64_t segments_step;
  uint64_t key, step, first;
  uint32_t drop_below;

  __device__ HeadOptions(const SomeOptions& o, int length, bool causal, int heads, int sample,
                         int head)
      : window(o.window),
        length(length),
        entries(o.entries),
        causal(causal),
        scale(W(o.scale)),
        cap(W(o.cap)),
        one_by_cap(o.cap > 0 ? W(1 / o.cap) : W(0)),
        slope(0),
        kept(W(o.kept)),
        bias(o.bias ? static_cast<const T*>(o.bias) + head * o.bias_head : nullptr),
        bias_step(o.bias_step),
        segments(o.segments ? o.segments + sample * o.segments_sample : nullptr),
        segments_step(o.segments_step),
        key(0),
        step(0),
        first(0),
        drop_below(o.counter ? o.drop_below : 0) {
    if (o.alibi) {
      slope = W(head < o.power ? exp2(-8.0 * (head + 1) / o.power)
                               : exp2(-4.0 * (2 * (head - o.power) + 1) / o.power));
    }
    if (o.counter) {
      const uint64_t seed = static_cast<uint64_t>(o.counter[0]);
      key = o.path ^ (seed * 0x9E3779B97F4A7C15);  // random_key of base/philox.h
      key ^= key >> 29;
      key *= 0xbf58476d1ce4e5b9;
      key ^= key >> 32;
      step = static_cast<uint64_t>(o.counter[1]);
      first = (static_cast<uint64_t>(o.counter[2] + sample) * heads + head) * length * length;
    }
  }

  // Both inside the sequence.
  __device__ bool sees(int query, int at) const {
    if (query >= length || at >= length || (causal && at > query)) return false;
    if (window && (query - at >= window || at - query >= window)) return false;
    return !segments || segments[query * segments_step] == segments[at * segments_step];
  }

  // What the softmax is given for a product of a query and a key that it sees, and the slope of the
  // cap there.
  __device__ W logit(W product, int query, int at, W& cap_slope) const {
    W x = product * scale;
    cap_slope = 1;
    if (cap > 0) {
      const W t = tanh_of(x * one_by_cap);
      x = cap * t;
      cap_slope = 1 - t * t;
    }
    const int distance = query < at ? at - query : query - at;
    x -= slope * W(distance);
    if (bias) {
      const int entry = distance < entries ? distance : entries - 1;
      x += W(read_element<T>(bias, entry * bias_step));
    }
    return x;
  }

  // What dropout multiplies a weight with.
  __device__ W factor(int query, int at) const {
    if (!drop_below) return 1;
    const uint64_t element = first + static_cast<uint64_t>(query) * length + at;
    uint32_t word[4];
    random_words(element / 4, step, key, word);
    const int which = element % 4;
    const uint32_t bits =
        which < 2 ? (which ? word[1] : word[0]) : (which == 2 ? word[2] : word[3]);
    return (bits >> 8) < drop_below ? W(0) : kept;
  }
};

// The keys, from a multiple of `tile` on, that queries [first, first + rows) may see.
struct KeyRange {
  int begin, end;
  __device__ KeyRange(int window, int length, bool causal, int first, int rows, int tile) {
    begin = window ? max(0, first - window + 1) / tile * tile : 0;
    end = causal   ? min(length, first + rows)
          : window ? min(length, first + rows - 1 + window)
                   : length;
  }
};
// The queries, from a multiple of `tile` on from `first` if causal, that see keys [first, first +
// rows).
struct QueryRange {
  int begin, end;
  __device__ QueryRange(int window, int length, bool causal, int first, int rows, int tile) {
    begin = causal ? first : window ? max(0, first - window + 1) / tile * tile : 0;
    end = window ? min(length, first + rows - 1 + window) : length;
  }
};

}  // namespace adjoint::attention_tiles
