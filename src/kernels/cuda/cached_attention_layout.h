// Into how many pieces the keys of cached attention are cut, and what the pieces leave: said
// without CUDA, because plans are made without it.
#pragma once
#include <algorithm>

#include "base/bytes.h"
#include "ops/attention_shape.h"

namespace adjoint {

struct CachedAttentionLayout {
  int64_t rows, pieces;  // queries of all heads and samples; of the keys of each

  CachedAttentionLayout(const AttentionShape& s, int64_t queries)
      : rows(s.samples * s.kv_heads * s.group * queries) {
    // A GPU has some hundred processors with room for several blocks each; a piece of fewer keys
    // than this would cost more to add up, by a second kernel, than to sum.
    constexpr int64_t kBlocks = 1024, kKeys = 512;
    const int64_t keys = s.window ? std::min(s.window, s.length) : s.length;
    pieces = std::clamp<int64_t>(kBlocks / rows, 1, (keys + kKeys - 1) / kKeys);
  }

  // The largest logit, the sum and the weighed values of every piece.
  Bytes workspace(const AttentionShape& s) const {
    return pieces == 1 ? Bytes{0} : rows * pieces * (2 + s.value_size) * size_of(s.wide());
  }
};

}  // namespace adjoint
