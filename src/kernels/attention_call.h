// One call of attention, or of its gradient, as a kernel sees it: the numbers that say what it is,
// and where everything lies. Includes little, so that device code can read it.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/rows.h"
#include "ops/attention_shape.h"

namespace adjoint {

// What options read; null where a call has none of it. Steps are in elements.
struct AttentionExtras {
  const void* bias = nullptr;  // [heads, n], of the rows' dtype
  int64_t bias_head = 0, bias_step = 0;
  const void* sinks = nullptr;  // [heads], of the rows' dtype
  int64_t sinks_step = 0;
  const int32_t* segments = nullptr;  // [samples, length]
  int64_t segments_sample = 0, segments_step = 0;
  const int64_t* counter = nullptr;  // seed, step, first sample
  std::string key = {};              // of the random numbers: element [sample, head, query, key]
};

struct AttentionPlaces {
  AttentionShape shape;
  Rows q, k, v, out;
  void* lse;  // may be null of cached attention, which nobody differentiates
  AttentionExtras extras = {};
  // Of cached attention: how many queries there are, and at which position each sample's begin.
  int64_t queries = 0;
  const int32_t* origins = nullptr;
  int64_t origins_step = 0;
  int64_t ring = 0;  // rows of keys, of which a position has that of its remainder; 0: one each
};

struct AttentionGradPlaces {
  AttentionShape shape;
  Rows q, k, v, out, dout, dq, dk, dv;
  const void* lse;
  AttentionExtras extras = {};
  void* dbias = nullptr;  // of the wide dtype, and so the sinks'
  int64_t dbias_head = 0, dbias_step = 0;
  void* dsinks = nullptr;
  int64_t dsinks_step = 0;
};

}  // namespace adjoint
