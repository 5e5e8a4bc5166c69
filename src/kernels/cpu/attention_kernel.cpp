// Per head: keys and values are packed once (transposed into panels where a product wants columns
// of keys), then queries go in blocks of kQueries rows against blocks of kKeys keys. A block's
// scores stay in the first-level cache and blocks above the diagonal are never computed. Forward
// keeps a running maximum and sum per row (Milakov & Gimelshein, 2018); backward recomputes the
// scores from the kept log-sum (Dao et al., 2022). Blocks depend on the shape alone, so the bits
// depend on neither threads nor batch.
#include "kernels/cpu/attention_kernel.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "device/parallel.h"
#include "kernels/cpu/attention_rows.h"

namespace adjoint {

namespace {

using Triangle = SmallProduct::Triangle;

int64_t padded(int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

template <class T>
T* head(Rows rows, int64_t sample, int64_t head, int64_t size) {
  return static_cast<T*>(rows.data) + sample * rows.sample_step + head * size;
}

// Distributes units among workers. Each worker has a workspace of its own, whichever thread runs
// it.
template <class F>
void for_units(int64_t units, int workers, const F& f) {
  parallel_for(workers, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t w = begin; w < end; ++w) f(units * w / workers, units * (w + 1) / workers, w);
  });
}

// How many of the keys from `key` on the query `first` sees; each later query sees one more.
// Without a mask it is more than there are keys, so that every query sees all.
int64_t seen_by_first(const AttentionShape& s, int64_t first, int64_t key) {
  return s.causal ? first + 1 - key : kKeys;
}

// The keys that a block of queries sees, in whole blocks of keys from the first on.
int64_t first_seen(const AttentionShape& s, int64_t first) {
  return s.window ? std::max<int64_t>(0, first + 1 - s.window) / kKeys * kKeys : 0;
}
int64_t end_of_seen(const AttentionShape& s, int64_t first, int64_t rows) {
  if (s.causal) return first + rows;
  return s.window ? std::min(s.length, first + rows - 1 + s.window) : s.length;
}

// The products of a block of scores [rows, keys], whose row r sees its first `visible` + r keys.
// Scores: [rows, size] by the keys' columns, or the same of dout and the values.
SmallProduct columns_of_keys(int64_t size, int64_t rows, int64_t keys, int64_t visible) {
  return {.m = rows,
          .n = padded(keys),
          .k = size,
          .a_row = padded(size),
          .a_k = 1,
          .b_row = kPanel,
          .b_panel = kPanel * size,
          .c_row = kKeys,
          .triangle = Triangle::kResult,
          .visible = visible};
}
// Weights by [keys, size], added to [rows, size].
SmallProduct sums_over_keys(int64_t size, int64_t rows, int64_t keys, int64_t visible) {
  return {.m = rows,
          .n = padded(size),
          .k = keys,
          .a_row = kKeys,
          .a_k = 1,
          .b_row = padded(size),
          .b_panel = kPanel,
          .c_row = padded(size),
          .accumulate = true,
          .triangle = Triangle::kLeft,
          .visible = visible};
}
// Weights, transposed, by [rows, size], added to [keys, size].
SmallProduct sums_over_queries(int64_t size, int64_t rows, int64_t keys, int64_t visible) {
  return {.m = keys,
          .n = padded(size),
          .k = rows,
          .a_row = 1,
          .a_k = kKeys,
          .b_row = padded(size),
          .b_panel = kPanel,
          .c_row = padded(size),
          .accumulate = true,
          .triangle = Triangle::kLeftTransposed,
          .visible = visible};
}

// Random numbers are multiples of 2^-24, so the rate is rounded up to one, and no number is
// between.
float drop_below(const AttentionShape& s) {
  return static_cast<float>(std::ceil(s.dropout * 0x1p24) * 0x1p-24);
}

// What the options of a call keep beside a block: what distances add to the scores of a head, by
// key - query from 1 - length to length - 1, and the segments of a sample.
template <class W>
struct OptionSpace {
  W* added = nullptr;
  W* dadded = nullptr;
  int32_t* segments = nullptr;
  static int64_t count(const AttentionShape& s) {
    return (s.alibi || s.bias ? 4 * s.length : 0) + (s.segments ? s.length : 0);
  }
  OptionSpace(const AttentionShape& s, W* at) {
    if (s.alibi || s.bias) {
      added = at;
      dadded = at + 2 * s.length;
      at += 4 * s.length;
    }
    if (s.segments) segments = reinterpret_cast<int32_t*>(at);
  }

  void begin_sample(const AttentionShape& s, const AttentionExtras& extras, int64_t sample) const {
    if (!segments) return;
    const int32_t* from = extras.segments + sample * extras.segments_sample;
    for (int64_t i = 0; i < s.length; ++i) segments[i] = from[i * extras.segments_step];
  }

  // What is done with the scores of a head of a sample.
  ScoreOptions<W> begin_head(const AttentionShape& s, const AttentionExtras& extras, int64_t sample,
                             int64_t head) const {
    ScoreOptions<W> options = {.causal = s.causal,
                               .window = s.window,
                               .scale = static_cast<W>(s.scale()),
                               .cap = static_cast<W>(s.cap),
                               .segments = segments,
                               .drop_below = drop_below(s),
                               .kept = static_cast<W>(1 / (1 - s.dropout)),
                               .length = s.length};
    if (added) {
      W* nearest = added + s.length - 1;
      const W slope = static_cast<W>(s.slope(head));
      for (int64_t d = 0; d < s.length; ++d) {
        nearest[d] = nearest[-d] = -slope * static_cast<W>(d);
        if (!s.bias) continue;
        const int64_t entry = std::min(d, s.bias - 1) * extras.bias_step;
        nearest[-d] +=
            static_cast<W>(load_element(extras.bias, s.dtype, head * extras.bias_head + entry));
      }
      options.added = nearest;
      std::fill(dadded, dadded + 2 * s.length, W{0});
    }
    if (extras.counter) {
      const int64_t first = (extras.counter[2] + sample) * s.kv_heads * s.group + head;
      options.random_key = random_key(static_cast<uint64_t>(extras.counter[0]), extras.key);
      options.random_step = static_cast<uint64_t>(extras.counter[1]);
      options.first_random = static_cast<uint64_t>(first * s.length * s.length);
    }
    return options;
  }
};

template <class W>
W sink_of(const AttentionShape& s, const AttentionExtras& extras, int64_t head) {
  return static_cast<W>(load_element(extras.sinks, s.dtype, head * extras.sinks_step));
}

template <class W>
struct ForwardSpace {
  W *keys_t, *values, *keys, *queries, *result, *scores, *options;
  static int64_t count(const AttentionShape& s) {
    const int64_t wide = padded(s.size), value_wide = padded(s.value_size);
    return padded(s.length) * s.size + s.length * std::max(wide, value_wide) +
           kQueries * (wide + value_wide) + kQueries * kKeys + OptionSpace<W>::count(s);
  }
  ForwardSpace(const AttentionShape& s, void* at) {
    const int64_t wide = padded(s.size), value_wide = padded(s.value_size);
    keys_t = static_cast<W*>(at);
    values = keys_t + padded(s.length) * s.size;
    keys = values;  // until they are transposed
    queries = values + s.length * std::max(wide, value_wide);
    result = queries + kQueries * wide;
    scores = result + kQueries * value_wide;
    options = scores + kQueries * kKeys;
  }
};

// One block of queries against all keys that it sees, into result and lse. `options` is null where
// scores are only scaled and masked.
template <class W>
void forward_block(const AttentionShape& s, const ForwardSpace<W>& at,
                   const ScoreOptions<W>* options, Running<W> start, int64_t first, int64_t rows,
                   W* lse) {
  const int64_t wide = padded(s.value_size), seen = end_of_seen(s, first, rows);
  const W scale = static_cast<W>(s.scale());
  Running<W> running[kQueries];
  std::fill(running, running + rows, start);
  std::fill(at.result, at.result + rows * wide, W{0});
  for (int64_t key = first_seen(s, first); key < seen; key += kKeys) {
    const int64_t keys = std::min(kKeys, seen - key), visible = seen_by_first(s, first, key);
    small_product(columns_of_keys(s.size, rows, keys, visible), at.queries,
                  at.keys_t + key * s.size, at.scores);
    if (options) {
      weigh_block(at.scores, {first, rows, key, keys}, *options, running, at.result, wide);
    } else {
      weigh_block(at.scores, rows, visible, keys, scale, running, at.result, wide);
    }
    small_product(sums_over_keys(s.value_size, rows, keys, visible), at.scores,
                  at.values + key * wide, at.result);
  }
  for (int64_t r = 0; r < rows; ++r) {
    multiply(at.result + r * wide, wide, 1 / running[r].sum);
    if (lse) lse[r] = running[r].highest + std::log(running[r].sum);
  }
}

// Which positions the queries of a sample have: all of them, or `queries` from the origin on. Those
// that would be past the last are at the last. In a ring positions are counted from the block of
// keys on that the first query sees, so that blocks are the same as without one.
struct QueryPlaces {
  int64_t queries, origin, length, first_key = 0;
  QueryPlaces(const AttentionPlaces& p, int64_t sample)
      : queries(p.origins ? p.queries : p.shape.length),
        origin(p.origins ? std::max(0, p.origins[sample * p.origins_step]) : 0),
        length(p.shape.length) {
    if (p.ring) first_key = first_seen(p.shape, origin), origin -= first_key;
  }

  int64_t seen() const { return std::min(length, origin + queries); }  // by any of them
  int64_t position(int64_t query) const { return std::min(length - 1, origin + query); }
  // How many queries from this one on are a block, one position behind the other.
  int64_t rows(int64_t query) const {
    return std::max<int64_t>(1, std::min({kQueries, queries - query, length - origin - query}));
  }
};

// Keys or values of one head, those of a ring in the order of their positions.
template <class T, class W>
void pack_seen(W* to, int64_t width, const AttentionPlaces& p, const QueryPlaces& places,
               const T* from, int64_t row_step, int64_t size) {
  const int64_t seen = places.seen();
  for (int64_t i = 0, rows; i < seen; i += rows) {
    const int64_t row = p.ring ? (places.first_key + i) % p.ring : i;
    rows = std::min(seen - i, (p.ring ? p.ring : seen) - row);
    pack(to + i * width, width, from + row * row_step, row_step, rows, size);
  }
}

template <class T>
void forward(const AttentionPlaces& p, int workers, void* workspace) {
  using W = typename Wide<T>::type;
  const AttentionShape& s = p.shape;
  const int64_t n = s.length, d = s.size, wide = padded(d);
  const int64_t value_d = s.value_size, value_wide = padded(value_d);
  const int64_t per_thread = forward_bytes_per_thread(s).count;
  // If there are fewer heads of keys than threads, heads of queries are distributed instead.
  const int64_t kv_units = s.samples * s.kv_heads, parts = kv_units < workers ? s.group : 1;
  for_units(kv_units * parts, workers, [&](int64_t begin, int64_t end, int64_t worker) {
    const ForwardSpace<W> at(s, static_cast<char*>(workspace) + worker * per_thread);
    const OptionSpace<W> for_options(s, at.options);
    for (int64_t each = begin; each < end; ++each) {
      const int64_t unit = each / parts, part = each % parts;
      const int64_t sample = unit / s.kv_heads, kv = unit % s.kv_heads;
      const QueryPlaces places(p, sample);
      const int64_t seen = places.seen();
      pack_seen(at.keys, wide, p, places, head<T>(p.k, sample, kv, d), p.k.row_step, d);
      transpose(at.keys_t, at.keys, wide, seen, d);
      pack_seen(at.values, value_wide, p, places, head<T>(p.v, sample, kv, value_d), p.v.row_step,
                value_d);
      for_options.begin_sample(s, p.extras, sample);
      for (int64_t g = s.group * part / parts; g < s.group * (part + 1) / parts; ++g) {
        const int64_t h = kv * s.group + g;
        ScoreOptions<W> options;
        if (!s.is_plain()) options = for_options.begin_head(s, p.extras, sample, h);
        Running<W> start;
        if (s.sinks) start = {sink_of<W>(s, p.extras, h), 1};
        W* lse = p.lse ? static_cast<W*>(p.lse) + (unit * s.group + g) * n : nullptr;
        for (int64_t first = 0, rows; first < places.queries; first += rows) {
          rows = places.rows(first);
          pack(at.queries, wide, head<T>(p.q, sample, h, d) + first * p.q.row_step, p.q.row_step,
               rows, d);
          forward_block(s, at, s.is_plain() ? nullptr : &options, start, places.position(first),
                        rows, lse ? lse + first : nullptr);
          unpack(head<T>(p.out, sample, h, value_d) + first * p.out.row_step, p.out.row_step,
                 at.result, value_wide, rows, value_d);
        }
      }
    }
  });
}

template <class W>
struct BackwardSpace {
  W *keys, *values, *keys_t, *values_t, *dkeys, *dvalues;
  W *queries, *douts, *outs, *dqueries, *scores, *dscores, *slopes, *options;
  static int64_t count(const AttentionShape& s) {
    const int64_t wide = padded(s.size), value_wide = padded(s.value_size);
    return s.length * std::max(wide, value_wide) + padded(s.length) * (s.size + s.value_size) +
           s.length * (wide + value_wide) + 2 * kQueries * (wide + value_wide) +
           (s.cap > 0 ? 3 : 2) * kQueries * kKeys + OptionSpace<W>::count(s);
  }
  BackwardSpace(const AttentionShape& s, void* at) {
    const int64_t wide = padded(s.size), value_wide = padded(s.value_size);
    keys = static_cast<W*>(at);
    values = keys;  // until they are transposed
    keys_t = keys + s.length * std::max(wide, value_wide);
    values_t = keys_t + padded(s.length) * s.size;
    dkeys = values_t + padded(s.length) * s.value_size;
    dvalues = dkeys + s.length * wide;
    queries = dvalues + s.length * value_wide;
    douts = queries + kQueries * wide;
    outs = douts + kQueries * value_wide;
    dqueries = outs + kQueries * value_wide;
    scores = dqueries + kQueries * wide;
    dscores = scores + kQueries * kKeys;
    slopes = dscores + kQueries * kKeys;
    options = slopes + (s.cap > 0 ? kQueries * kKeys : 0);
  }
};

// One block of queries: its own gradient, and its contribution to those of keys and values.
template <class W>
void backward_block(const AttentionShape& s, const BackwardSpace<W>& at,
                    const ScoreOptions<W>* options, W* dadded, int64_t first, int64_t rows,
                    const W* lse, const W* delta) {
  const int64_t wide = padded(s.size), value_wide = padded(s.value_size);
  const int64_t seen = end_of_seen(s, first, rows);
  const W scale = static_cast<W>(s.scale());
  std::fill(at.dqueries, at.dqueries + rows * wide, W{0});
  for (int64_t key = first_seen(s, first); key < seen; key += kKeys) {
    const int64_t keys = std::min(kKeys, seen - key), visible = seen_by_first(s, first, key);
    small_product(columns_of_keys(s.size, rows, keys, visible), at.queries,
                  at.keys_t + key * s.size, at.scores);
    small_product(columns_of_keys(s.value_size, rows, keys, visible), at.douts,
                  at.values_t + key * s.value_size, at.dscores);
    if (options) {
      weigh_block_back(at.scores, at.dscores, at.slopes, {first, rows, key, keys}, *options, lse,
                       delta, dadded);
    } else {
      weigh_block_back(at.scores, at.dscores, rows, visible, keys, scale, lse, delta);
    }
    small_product(sums_over_keys(s.size, rows, keys, visible), at.dscores, at.keys + key * wide,
                  at.dqueries);
    small_product(sums_over_queries(s.value_size, rows, keys, visible), at.scores, at.douts,
                  at.dvalues + key * value_wide);
    small_product(sums_over_queries(s.size, rows, keys, visible), at.dscores, at.queries,
                  at.dkeys + key * wide);
  }
}

// What each sample's heads add to the gradients of the bias and the sinks.
template <class W>
struct SampleSums {
  W *bias, *sinks;
  int64_t heads, entries;
  static int64_t count(const AttentionShape& s) {
    return s.samples * s.kv_heads * s.group * (s.bias + s.sinks);
  }
  SampleSums(const AttentionShape& s, void* at)
      : bias(static_cast<W*>(at)),
        sinks(bias + s.samples * s.kv_heads * s.group * s.bias),
        heads(s.kv_heads * s.group),
        entries(s.bias) {}

  W* bias_of(int64_t sample, int64_t head) const {
    return bias + (sample * heads + head) * entries;
  }
  // `dadded` by key - query, from 0 on.
  void set_bias(const AttentionShape& s, int64_t sample, int64_t head, const W* dadded) const {
    W* sums = bias_of(sample, head);
    std::fill(sums, sums + entries, W{0});
    for (int64_t d = 0; d < s.length; ++d) sums[std::min(d, entries - 1)] += dadded[-d];
  }
  // Samples in their order, whoever computed them.
  void add_up(const AttentionGradPlaces& p) const {
    const auto total = [&](const W* first, int64_t step) {
      W sum = 0;
      for (int64_t sample = 0; sample < p.shape.samples; ++sample) sum += first[sample * step];
      return sum;
    };
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t e = 0; e < entries; ++e) {
        static_cast<W*>(p.dbias)[h * p.dbias_head + e * p.dbias_step] =
            total(bias_of(0, h) + e, heads * entries);
      }
      if (p.dsinks) static_cast<W*>(p.dsinks)[h * p.dsinks_step] = total(sinks + h, heads);
    }
  }
};

template <class T>
void backward(const AttentionGradPlaces& p, int workers, void* workspace) {
  using W = typename Wide<T>::type;
  const AttentionShape& s = p.shape;
  const int64_t n = s.length, d = s.size, wide = padded(d);
  const int64_t value_d = s.value_size, value_wide = padded(value_d);
  const int64_t per_thread = backward_bytes_per_thread(s).count;
  const SampleSums<W> sums(s, static_cast<char*>(workspace) + workers * per_thread);
  for_units(s.samples * s.kv_heads, workers, [&](int64_t begin, int64_t end, int64_t worker) {
    const BackwardSpace<W> at(s, static_cast<char*>(workspace) + worker * per_thread);
    const OptionSpace<W> for_options(s, at.options);
    W* dadded = s.bias ? for_options.dadded + n - 1 : nullptr;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t sample = unit / s.kv_heads, kv = unit % s.kv_heads;
      pack(at.values, value_wide, head<T>(p.v, sample, kv, value_d), p.v.row_step, n, value_d);
      transpose(at.values_t, at.values, value_wide, n, value_d);
      pack(at.keys, wide, head<T>(p.k, sample, kv, d), p.k.row_step, n, d);
      transpose(at.keys_t, at.keys, wide, n, d);
      std::fill(at.dkeys, at.dkeys + n * (wide + value_wide), W{0});
      for_options.begin_sample(s, p.extras, sample);
      for (int64_t g = 0; g < s.group; ++g) {
        const int64_t h = kv * s.group + g;
        ScoreOptions<W> options;
        if (!s.is_plain()) options = for_options.begin_head(s, p.extras, sample, h);
        const W sink = s.sinks ? sink_of<W>(s, p.extras, h) : W{0};
        W dsink = 0;
        const W* lse = static_cast<const W*>(p.lse) + (unit * s.group + g) * n;
        for (int64_t first = 0; first < n; first += kQueries) {
          const int64_t rows = std::min(kQueries, n - first);
          const auto block = [&](W* to, Rows from, int64_t size) {
            pack(to, padded(size), head<T>(from, sample, h, size) + first * from.row_step,
                 from.row_step, rows, size);
          };
          block(at.queries, p.q, d);
          block(at.douts, p.dout, value_d);
          block(at.outs, p.out, value_d);
          W delta[kQueries];
          for (int64_t r = 0; r < rows; ++r) {
            delta[r] = dot(at.douts + r * value_wide, at.outs + r * value_wide, value_d);
            if (s.sinks) dsink -= std::exp(sink - lse[first + r]) * delta[r];
          }
          backward_block(s, at, s.is_plain() ? nullptr : &options, dadded, first, rows, lse + first,
                         delta);
          unpack(head<T>(p.dq, sample, h, d) + first * p.dq.row_step, p.dq.row_step, at.dqueries,
                 wide, rows, d);
        }
        if (s.bias) sums.set_bias(s, sample, h, dadded);
        if (s.sinks) sums.sinks[sample * sums.heads + h] = dsink;
      }
      unpack(head<T>(p.dk, sample, kv, d), p.dk.row_step, at.dkeys, wide, n, d);
      unpack(head<T>(p.dv, sample, kv, value_d), p.dv.row_step, at.dvalues, value_wide, n, value_d);
    }
  });
  sums.add_up(p);
}

}  // namespace

Bytes forward_bytes_per_thread(const AttentionShape& shape) {
  return round_up(ForwardSpace<float>::count(shape) * size_of(shape.wide()), {64});
}

Bytes backward_bytes_per_thread(const AttentionShape& shape) {
  return round_up(BackwardSpace<float>::count(shape) * size_of(shape.wide()), {64});
}

Bytes backward_bytes_shared(const AttentionShape& shape) {
  return SampleSums<float>::count(shape) * size_of(shape.wide());
}

int attention_workers(int threads, Bytes per_thread, Bytes cap) {
  return static_cast<int>(std::clamp<int64_t>(cap.count / per_thread.count, 1, threads));
}

// The first block may begin up to a block before the window does.
int64_t keys_of_window(int64_t window, int64_t queries) { return window + queries + kKeys; }

void attention_forward(const AttentionPlaces& places, int workers, void* workspace) {
  with_float_type(places.shape.dtype, [&]<class T>() { forward<T>(places, workers, workspace); });
}

void attention_backward(const AttentionGradPlaces& places, int workers, void* workspace) {
  with_float_type(places.shape.dtype, [&]<class T>() { backward<T>(places, workers, workspace); });
}

}  // namespace adjoint
