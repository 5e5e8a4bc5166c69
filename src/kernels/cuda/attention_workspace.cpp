// The workspace of attention on CUDA, from the shape alone, because plans are also made without a
// GPU and cuDNN. The bounds are those that cuDNN 9.19 reported for Ampere, Hopper and Blackwell (it
// can make plans for absent devices), rounded up.
#include <algorithm>
#include <functional>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_plain.h"

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

// Parts of equal size, the largest first: fewer samples, and then fewer heads of keys of one.
std::vector<AttentionShape> parts_of(const AttentionShape& shape) {
  std::vector<AttentionShape> parts;
  AttentionShape part = shape;
  for (int64_t& size : {std::ref(part.samples), std::ref(part.kv_heads)}) {
    const int64_t whole = size;
    for (; size > 0; --size) {
      if (whole % size == 0) parts.push_back(part);
    }
    size = 1;
  }
  return parts;
}

// What cuDNN keeps of the gradient of a part.
Bytes cudnn_grad_bytes(const AttentionShape& part, bool deterministic) {
  const int64_t size = std::max(part.size, part.value_size);
  const int64_t elements = part.samples * heads(part) * part.length * size;
  Bytes bytes = kAnyPlan;
  // dk and dv by head of queries, before their sum.
  if (part.group > 1) bytes += (2 * elements) * Bytes{2};
  if (deterministic) return bytes + (part.samples * part.kv_heads) * scores_bytes(part);
  // The sums of dq that we lend, and others that all generations but Hopper keep beside them.
  const int64_t padded_elements = part.samples * heads(part) * padded(part.length) * size;
  return bytes + (elements + padded_elements) * Bytes{4};
}

}  // namespace

Bytes grad_of_tables_workspace(const AttentionShape& s) {
  if (!s.bias) return {0};
  // Tiles have 16 keys at least and 128 queries at most; a length is filled up to whole tiles.
  constexpr int64_t kKeys = 16, kQueries = 128, kDistances = 160;
  const int64_t diagonals = (s.length + kQueries - 1) / kKeys;
  return (heads(s) * diagonals * kDistances) * size_of(s.wide());
}

Bytes attention_grad_plain_workspace(const AttentionShape& s) {
  const Bytes sums = (s.samples * heads(s) * s.length) * size_of(s.wide());
  return s.bias ? round_up(sums, {256}) + grad_of_tables_workspace(s) : sums;
}

bool cudnn_takes(const AttentionShape& s) {
  // A window that looks back and a cap are parts of cuDNN's patterns; what reads further operands
  // is for our own kernels.
  AttentionShape rest = s;
  rest.window = 0;
  rest.cap = 0;
  if (!rest.is_plain() || (s.window && !s.causal)) return false;
  // Below 64 there is nothing to win, and a single position has no backward.
  return (s.dtype == Dtype::kBF16 || s.dtype == Dtype::kF16) && s.size % 8 == 0 && s.size <= 256 &&
         s.value_size % 8 == 0 && s.value_size <= 256 && s.length >= 64;
}

AttentionWay attention_way(const AttentionShape& shape, Bytes cap) {
  const bool cudnn = cudnn_takes(shape) && kAnyPlan <= cap;
  return {.cudnn = cudnn, .part = shape, .workspace = cudnn ? kAnyPlan : Bytes{0}};
}

AttentionWay attention_grad_way(const AttentionShape& shape, bool deterministic, Bytes cap) {
  // Sums per query, which our own kernels want too, and of the whole shape.
  const Bytes row_sums = attention_grad_plain_workspace(shape);
  const AttentionWay own{.cudnn = false, .part = shape, .workspace = row_sums};
  if (!cudnn_takes(shape)) return own;
  for (const AttentionShape& part : parts_of(shape)) {
    const int64_t heads_of_keys = part.samples * part.kv_heads;
    if (deterministic && heads_of_keys > 1 && heads_of_keys * scores_bytes(part) > kScoresAtOnce) {
      continue;
    }
    const Bytes workspace = row_sums + cudnn_grad_bytes(part, deterministic);
    if (workspace <= cap) return {.cudnn = true, .part = part, .workspace = workspace};
  }
  return own;
}

}  // namespace adjoint
