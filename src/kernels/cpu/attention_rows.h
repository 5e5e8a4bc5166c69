// What attention does row by row around its products: softmax of blocks of scores, and packing.
#pragma once
#include <algorithm>
#include <cmath>

#include "kernels/cpu/small_product.h"
#include "scheme/elements.h"

namespace adjoint {

// Queries and keys of a block. Both are multiples of every row tile of small_product (4, 6, 12),
// kKeys of kPanel, too.
constexpr int64_t kQueries = 48, kKeys = 96;

// A row's part of the softmax: what was seen before, updated.
template <class W>
struct Running {
  W highest = -INFINITY, sum = 0;
};

// Scores [rows, kKeys] become weights against the running maxima, and the result's rows so far,
// `width` long, are brought to the same. Row r sees min(keys, visible + r) of the keys; the weights
// of the others are zero.
void weigh_block(float* scores, int64_t rows, int64_t visible, int64_t keys, float scale,
                 Running<float>* running, float* result, int64_t width);
void weigh_block(double* scores, int64_t rows, int64_t visible, int64_t keys, double scale,
                 Running<double>* running, double* result, int64_t width);

// Scores become weights by their log-sums, and the weights' gradients those of the scores:
// ds = p * (dp - delta) * scale.
void weigh_block_back(float* scores, float* dscores, int64_t rows, int64_t visible, int64_t keys,
                      float scale, const float* lse, const float* delta);
void weigh_block_back(double* scores, double* dscores, int64_t rows, int64_t visible, int64_t keys,
                      double scale, const double* lse, const double* delta);

// Which scores a block holds: queries from `query` on, keys from `key` on.
struct ScoreBlock {
  int64_t query, rows, key, keys;
};
// What options do with scores, of one head of one sample. Null or 0: nothing of the kind.
template <class W>
struct ScoreOptions {
  bool causal = true;
  int64_t window = 0;
  W scale = 1, cap = 0;
  const W* added = nullptr;  // to the score of a key, by key - query, from there on both ways
  const int32_t* segments = nullptr;  // of all positions
  float drop_below = 0;               // weights whose random number is below are dropped,
  W kept = 1;                         // and the others multiplied by this
  uint64_t random_key = 0, random_step = 0, first_random = 0;  // that of query 0 and key 0
  int64_t length = 0;                                          // random numbers per query
};

// weigh_block where scores have options.
void weigh_block(float* scores, const ScoreBlock& block, const ScoreOptions<float>& options,
                 Running<float>* running, float* result, int64_t width);
void weigh_block(double* scores, const ScoreBlock& block, const ScoreOptions<double>& options,
                 Running<double>* running, double* result, int64_t width);

// weigh_block_back where scores have options. `slopes`, a block of scores, has room for those of
// the cap; where `dadded` is not null, what `added` adds to the loss is added there.
void weigh_block_back(float* scores, float* dscores, float* slopes, const ScoreBlock& block,
                      const ScoreOptions<float>& options, const float* lse, const float* delta,
                      float* dadded);
void weigh_block_back(double* scores, double* dscores, double* slopes, const ScoreBlock& block,
                      const ScoreOptions<double>& options, const double* lse, const double* delta,
                      double* dadded);

void multiply(float* x, int64_t n, float by);
void multiply(double* x, int64_t n, double by);
float dot(const float* x, const float* y, int64_t n);
double dot(const double* x, const double* y, int64_t n);

// Rows between memory and the wide type.
void load_row(double* to, const double* from, int64_t n);
void load_row(float* to, const float* from, int64_t n);
void load_row(float* to, const BFloat16* from, int64_t n);
void load_row(float* to, const Float16* from, int64_t n);
void store_row(double* to, const double* from, int64_t n);
void store_row(float* to, const float* from, int64_t n);
void store_row(BFloat16* to, const float* from, int64_t n);
void store_row(Float16* to, const float* from, int64_t n);

// One head's rows, each `width` long: what is past `size` is zero.
template <class T, class W>
void pack(W* to, int64_t width, const T* from, int64_t row_step, int64_t length, int64_t size) {
  for (int64_t i = 0; i < length; ++i) {
    load_row(to + i * width, from + i * row_step, size);
    std::fill(to + i * width + size, to + (i + 1) * width, W{0});
  }
}
template <class T, class W>
void unpack(T* to, int64_t row_step, const W* from, int64_t width, int64_t length, int64_t size) {
  for (int64_t i = 0; i < length; ++i) store_row(to + i * row_step, from + i * width, size);
}

// rows[length, width] -> panels of kPanel rows, each [size, kPanel]; the last is filled with zeros.
void transpose(float* panels, const float* rows, int64_t width, int64_t length, int64_t size);
void transpose(double* panels, const double* rows, int64_t width, int64_t length, int64_t size);

}  // namespace adjoint
