// How much memory attention on CUDA works in, from the shape alone: plans are made where there is
// no GPU and no cuDNN to ask. The bounds are what cuDNN 9.19 said of its plans for Ampere, Hopper
// and Blackwell (its plans can be made for a device that is not there), rounded up.
#include <algorithm>

#include "ops/attention_cuda.h"

namespace adjoint {

namespace {

constexpr Bytes kAnyPlan{64 << 10};        // said: 256 at most, where a plan keeps nothing large
constexpr int64_t kTile = 128;             // cuDNN's tiles of queries and keys have so many at most
constexpr Bytes kScoresAtOnce{256 << 20};  // of a deterministic gradient; a launch fills an H200

int64_t heads(const AttentionShape& s) { return s.kv_heads * s.group; }
int64_t padded(int64_t length) { return (length + kTile - 1) / kTile * kTile; }

// 16-bit, of the queries that share one head of keys.
Bytes scores_bytes(const AttentionShape& s) {
  return (s.group * padded(s.length) * padded(s.length)) * Bytes{2};
}

int64_t largest_divisor(int64_t number, int64_t at_most) {
  int64_t divisor = std::clamp<int64_t>(at_most, 1, number);
  while (number % divisor) --divisor;
  return divisor;
}

}  // namespace

bool cudnn_takes(const AttentionShape& s) {
  // Below 64 there is nothing to win, and a single position has no backward.
  return (s.dtype == Dtype::kBF16 || s.dtype == Dtype::kF16) && s.size % 8 == 0 && s.size <= 256 &&
         s.length >= 64;
}

AttentionShape attention_grad_part(const AttentionShape& shape, bool deterministic) {
  AttentionShape part = shape;
  if (!deterministic || !cudnn_takes(shape)) return part;
  const int64_t kv_heads = kScoresAtOnce.count / scores_bytes(shape).count;
  if (kv_heads >= shape.kv_heads) {
    part.samples = largest_divisor(shape.samples, kv_heads / shape.kv_heads);
  } else {
    part.samples = 1;
    part.kv_heads = largest_divisor(shape.kv_heads, kv_heads);
  }
  return part;
}

Bytes attention_cuda_workspace(const AttentionShape& shape) {
  return cudnn_takes(shape) ? kAnyPlan : Bytes{0};
}

Bytes attention_grad_cuda_workspace(const AttentionShape& shape, bool deterministic) {
  // Sums per query, which our own kernels want too, and of the whole shape.
  const Bytes row_sums = (shape.samples * heads(shape) * shape.length) * size_of(shape.wide());
  if (!cudnn_takes(shape)) return row_sums;
  const AttentionShape part = attention_grad_part(shape, deterministic);
  const int64_t elements = part.samples * heads(part) * part.length * part.size;
  Bytes bytes = row_sums + kAnyPlan;
  // dk and dv by head of queries, before their sum.
  if (part.group > 1) bytes += (2 * elements) * Bytes{2};
  if (deterministic) return bytes + (part.samples * part.kv_heads) * scores_bytes(part);
  // The sums of dq that we lend, and others that all generations but Hopper keep beside them.
  const int64_t padded_elements = part.samples * heads(part) * padded(part.length) * part.size;
  return bytes + (elements + padded_elements) * Bytes{4};
}

}  // namespace adjoint
