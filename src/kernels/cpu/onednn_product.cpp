// A product through oneDNN: in float32, and in bf16 where the machine multiplies that; other dtypes
// are widened to float32 in the workspace. Where the workspace would exceed its cap another
// implementation is taken, then batches one by one, then pieces of m, n and k.
#include <algorithm>
#include <array>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/cpu/onednn_engine.h"
#include "kernels/cpu/product.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

dnnl::memory::data_type data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return dnnl::memory::data_type::f32;
    case Dtype::kBF16:
      return dnnl::memory::data_type::bf16;
    default:
      return dnnl::memory::data_type::undef;
  }
}

const dnnl::engine& engine() { return onednn_engine(); }

struct Descriptions {
  dnnl::memory::desc a, b, bias, c;
};
Descriptions describe(const Product& p, Dtype dtype, Dtype out_dtype) {
  const auto dims = [&](int64_t rows, int64_t columns) {
    dnnl::memory::dims d(p.batch.begin(), p.batch.end());
    d.push_back(rows);
    d.push_back(columns);
    return d;
  };
  const auto strides = [&](const std::vector<int64_t>& batch, int64_t rows, int64_t columns) {
    dnnl::memory::dims d(batch.begin(), batch.end());
    d.push_back(rows);
    d.push_back(columns);
    return d;
  };
  Descriptions d;
  d.a = {dims(p.m, p.k), data_type(dtype), strides(p.a_batch, p.a_m, p.a_k)};
  d.b = {dims(p.k, p.n), data_type(dtype), strides(p.b_batch, p.b_k, p.b_n)};
  d.c = {dims(p.m, p.n), data_type(out_dtype), strides(p.c_batch, p.c_m, p.c_n)};
  if (p.bias) {
    dnnl::memory::dims ones(p.batch.size() + 1, 1), steps(p.batch.size() + 1, p.n);
    ones.push_back(p.n);
    steps.push_back(1);
    d.bias = {ones, data_type(out_dtype), steps};
  }
  return d;
}

// Rows of a from which on b is worth laying out once, as oneDNN likes it best, rather than by every
// thread as it goes: the product reads each element of b this many times.
constexpr int64_t kPackedFrom = 2048;

// A primitive's description. oneDNN 2 reads what was asked for again when it is asked for the next
// implementation, where it was: so it is kept, and does not move.
struct Multiply : dnnl::matmul::primitive_desc {
  Multiply() = default;
#if DNNL_VERSION_MAJOR >= 3
  explicit Multiply(dnnl::matmul::primitive_desc made)
      : dnnl::matmul::primitive_desc(std::move(made)) {}
#else
  Multiply(const dnnl::matmul::desc& asked, const dnnl::primitive_attr& attr)
      : Multiply(std::make_shared<const dnnl::matmul::desc>(asked), attr) {}

 private:
  Multiply(std::shared_ptr<const dnnl::matmul::desc> asked, const dnnl::primitive_attr& attr)
      : dnnl::matmul::primitive_desc(*asked, attr, engine(), true), asked_(std::move(asked)) {}
  std::shared_ptr<const dnnl::matmul::desc> asked_;
#endif
};

// How a product runs: its primitive, and where b is laid out anew before it.
struct Native {
  Multiply multiply;
  std::optional<dnnl::reorder::primitive_desc> pack = {};

  static Bytes bytes(const dnnl::memory::desc& desc) {
    return round_up({static_cast<int64_t>(desc.get_size())}, {64});
  }
  Bytes packed() const { return pack ? bytes(multiply.weights_desc()) : Bytes{0}; }
  Bytes workspace() const {
    const Bytes packing = pack ? bytes(pack->scratchpad_desc()) : Bytes{0};
    return packed() + std::max(packing, bytes(multiply.scratchpad_desc()));
  }
};

Multiply best_primitive(const Product& p, const Descriptions& d) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return Multiply(p.bias ? dnnl::matmul::primitive_desc(engine(), d.a, d.b, d.bias, d.c, attr, true)
                         : dnnl::matmul::primitive_desc(engine(), d.a, d.b, d.c, attr, true));
#else
  const dnnl::matmul::desc desc =
      p.bias ? dnnl::matmul::desc(d.a, d.b, d.bias, d.c) : dnnl::matmul::desc(d.a, d.b, d.c);
  return Multiply(desc, attr);
#endif
}

std::optional<Native> packed_for(const Product& p, const Descriptions& plain) {
  if (!p.batch.empty() || p.m < kPackedFrom) return std::nullopt;
  Descriptions d = plain;
  d.b = {{p.k, p.n}, data_type(p.dtype), dnnl::memory::format_tag::any};
  Native native{.multiply = best_primitive(p, d)};
  if (!native.multiply) return std::nullopt;
  // Where it likes plain rows best it reads columns as well.
  const dnnl::memory::desc rows({p.k, p.n}, data_type(p.dtype), dnnl::memory::format_tag::ab);
  const dnnl::memory::desc likes = native.multiply.weights_desc();
  if (likes == plain.b || likes == rows) return std::nullopt;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  native.pack = dnnl::reorder::primitive_desc(engine(), plain.b, engine(), likes, attr, true);
  if (!*native.pack || native.workspace() > p.workspace_cap) return std::nullopt;
  return native;
}

// The first way for this shape on this machine whose workspace is within the cap, or the one with
// the smallest; nothing where oneDNN has none for the dtype.
std::optional<Native> native_for(const Product& p) {
  if (data_type(p.dtype) == dnnl::memory::data_type::undef ||
      data_type(p.out_dtype) == dnnl::memory::data_type::undef) {
    return std::nullopt;
  }
  const Descriptions d = describe(p, p.dtype, p.out_dtype);
  if (auto packed = packed_for(p, d)) return packed;
  Native native{.multiply = best_primitive(p, d)};
  if (!native.multiply) return std::nullopt;
  Bytes least = native.workspace();
  int best = 0, at = 0;
  while (least > p.workspace_cap && native.multiply.next_impl()) {
    ++at;
    if (native.workspace() < least) least = native.workspace(), best = at;
  }
  if (at == best) return native;
  native.multiply = best_primitive(p, d);
  for (int i = 0; i < best; ++i) native.multiply.next_impl();
  return native;
}

// A dtype that oneDNN does not multiply on this machine is widened to float32 in the workspace,
// densely: a[batch, m, k], b[batch, k, n], bias, c[batch, m, n].
struct Widened {
  Product product;
  Bytes a, b, bias, c;
  Bytes total() const { return a + b + bias + c; }
};
Widened widen(const Product& p) {
  Widened w{.product = p, .a = {}, .b = {}, .bias = {}, .c = {}};
  w.product.dtype = w.product.out_dtype = Dtype::kF32;
  w.product.accumulate = false;  // what was in c is added when the product is narrowed
  int64_t batch = 1;
  const auto dense = [&](std::vector<int64_t>& strides, int64_t inner) {
    int64_t next = inner;
    for (size_t i = p.batch.size(); i-- > 0;) {
      strides[i] = next;
      next *= p.batch[i];
    }
  };
  for (const int64_t size : p.batch) batch *= size;
  dense(w.product.a_batch, p.m * p.k);
  dense(w.product.b_batch, p.k * p.n);
  dense(w.product.c_batch, p.m * p.n);
  w.product.a_m = p.k, w.product.a_k = 1;
  w.product.b_k = p.n, w.product.b_n = 1;
  w.product.c_m = p.n, w.product.c_n = 1;
  w.a = round_up({batch * p.m * p.k * 4}, {64});
  w.b = round_up({batch * p.k * p.n * 4}, {64});
  w.c = round_up({batch * p.m * p.n * 4}, {64});
  w.bias = p.bias ? round_up({p.n * 4}, {64}) : Bytes{0};
  return w;
}

// Visits every (row, column) of every matrix of a batch with the offsets in two layouts.
template <class F>
void for_each_element(const std::vector<int64_t>& batch, int64_t rows, int64_t columns,
                      const std::vector<int64_t>& from_batch, int64_t from_row, int64_t from_column,
                      const std::vector<int64_t>& to_batch, int64_t to_row, int64_t to_column,
                      const F& f) {
  int64_t count = rows;
  for (const int64_t size : batch) count *= size;
  parallel_for(count, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t rest = unit / rows, from = unit % rows * from_row, to = unit % rows * to_row;
      for (size_t i = batch.size(); i-- > 0;) {
        from += rest % batch[i] * from_batch[i];
        to += rest % batch[i] * to_batch[i];
        rest /= batch[i];
      }
      for (int64_t c = 0; c < columns; ++c) f(from + c * from_column, to + c * to_column);
    }
  });
}

// The first axis of `outer` taken one step at a time; a summed one adds to what its first step
// made.
Product inner_of(const Product& p, bool first) {
  Product inner = p;
  inner.outer.erase(inner.outer.begin());
  inner.accumulate = p.accumulate || (p.outer[0].summed && !first);
  return inner;
}

Launch prepare_outer(const Product& p, const void* a, const void* b, const void* bias, void* c,
                     void* workspace) {
  const Product::Outer axis = p.outer[0];
  const int64_t size = size_of(p.dtype).count, out_size = size_of(p.out_dtype).count;
  std::vector<Launch> steps;
  for (int64_t i = 0; i < axis.size; ++i) {
    steps.push_back(prepare_product(inner_of(p, i == 0),
                                    static_cast<const char*>(a) + i * axis.a * size,
                                    static_cast<const char*>(b) + i * axis.b * size, bias,
                                    static_cast<char*>(c) + i * axis.c * out_size, workspace));
  }
  return [steps] {
    for (const Launch& step : steps) step();
  };
}

// How much of m, n and k one piece of a product takes.
struct Tile {
  int64_t m, n, k;
};
constexpr int64_t kLeastTile = 32;  // below this a product is mostly overhead

// The first piece along k begins the sum, the others add to it.
Product piece_of(const Product& p, const Tile& tile, bool first) {
  Product piece = p;
  piece.m = tile.m, piece.n = tile.n, piece.k = tile.k;
  piece.accumulate = p.accumulate || !first;
  piece.bias = p.bias && first;
  return piece;
}

bool is_native(const Product& p) { return native_for(p).has_value(); }

// What a side is cut into: whole pieces, and maybe a last one.
std::vector<int64_t> pieces(int64_t whole, int64_t part) {
  return whole % part ? std::vector<int64_t>{part, whole % part} : std::vector<int64_t>{part};
}

// The most that a piece of any shape asks for: the last ones may go by another algorithm.
Bytes native_workspace(const Product& p, const Tile& tile) {
  Bytes most{0};
  for (const int64_t m : pieces(p.m, tile.m)) {
    for (const int64_t n : pieces(p.n, tile.n)) {
      for (const int64_t k : pieces(p.k, tile.k)) {
        for (const bool first : {true, false}) {
          if (!first && tile.k == p.k) continue;
          const auto native = native_for(piece_of(p, {m, n, k}, first));
          CHECK(native, "oneDNN multiplies a part of what it multiplies");
          most = std::max(most, native->workspace());
        }
      }
    }
  }
  return most;
}

Bytes tile_workspace(const Product& p, const Tile& tile, bool native) {
  if (native) return native_workspace(p, tile);
  const Widened w = widen(piece_of(p, tile, true));
  Product wide = w.product;
  wide.m = p.m, wide.n = p.n, wide.k = p.k;  // so that a part of a side is known to be one
  return w.total() + native_workspace(wide, tile);
}

// The whole, or the longest side halved until the workspace is within the cap or nothing is left to
// halve. Sums stay float32: along k only where the result, or its widened copy, is that.
Tile tile_within(const Product& p, bool native) {
  Tile tile{p.m, p.n, p.k};
  while (tile_workspace(p, tile, native) > p.workspace_cap) {
    std::vector<int64_t*> sides = {&tile.m, &tile.n};
    if (!native || p.out_dtype == Dtype::kF32) sides.push_back(&tile.k);
    int64_t& longest = **std::max_element(sides.begin(), sides.end(),
                                          [](int64_t* x, int64_t* y) { return *x < *y; });
    if (longest <= kLeastTile) break;
    longest = (longest + 1) / 2;
  }
  return tile;
}

// Too large as a batch: one matrix after the other.
std::optional<Product> unbatched(const Product& p, bool native) {
  if (p.batch.empty() || tile_workspace(p, {p.m, p.n, p.k}, native) <= p.workspace_cap) {
    return std::nullopt;
  }
  Product q = p;
  q.outer.push_back({p.batch[0], p.a_batch[0], p.b_batch[0], p.c_batch[0], false});
  for (std::vector<int64_t>* list : {&q.batch, &q.a_batch, &q.b_batch, &q.c_batch}) {
    list->erase(list->begin());
  }
  return q;
}

// A primitive with its arguments as the C interface takes them: nothing to build in a step.
struct Prepared {
  dnnl::primitive primitive;
  dnnl::stream stream{engine()};
  std::vector<dnnl::memory> memories = {};
  std::vector<dnnl_exec_arg_t> arguments = {};

  void bind(int argument, const dnnl::memory::desc& desc, const void* data) {
    memories.emplace_back(desc, engine(), const_cast<void*>(data));
    arguments.push_back({argument, memories.back().get()});
  }
  void run() const {
    const dnnl_status_t status = dnnl_primitive_execute(
        primitive.get(), stream.get(), static_cast<int>(arguments.size()), arguments.data());
    CHECK(status == dnnl_success, "a prepared product runs");
    dnnl_stream_wait(stream.get());
  }
};

Launch prepare_native(const Product& p, const void* a, const void* b, const void* bias, void* c,
                      void* workspace) {
  const auto native = native_for(p);
  CHECK(native, "oneDNN multiplies what it was asked for");
  const Descriptions d = describe(p, p.dtype, p.out_dtype);
  void* scratch = static_cast<std::byte*>(workspace) + native->packed().count;
  auto multiply = std::make_shared<Prepared>(Prepared{dnnl::matmul(native->multiply)});
  multiply->bind(DNNL_ARG_SRC, d.a, a);
  multiply->bind(DNNL_ARG_WEIGHTS, native->multiply.weights_desc(), native->pack ? workspace : b);
  multiply->bind(DNNL_ARG_DST, d.c, c);
  if (p.bias) multiply->bind(DNNL_ARG_BIAS, d.bias, bias);
  multiply->bind(DNNL_ARG_SCRATCHPAD, native->multiply.scratchpad_desc(), scratch);
  if (!native->pack) return [multiply] { multiply->run(); };
  auto pack = std::make_shared<Prepared>(Prepared{dnnl::reorder(*native->pack)});
  pack->bind(DNNL_ARG_FROM, d.b, b);
  pack->bind(DNNL_ARG_TO, native->multiply.weights_desc(), workspace);
  pack->bind(DNNL_ARG_SCRATCHPAD, native->pack->scratchpad_desc(), scratch);
  return [pack, multiply] {
    pack->run();
    multiply->run();
  };
}

// Calls f(corner, tile) for every piece; those of one sum follow each other.
template <class F>
void for_each_tile(const Product& p, const Tile& tile, const F& f) {
  for (int64_t m = 0; m < p.m; m += tile.m) {
    for (int64_t n = 0; n < p.n; n += tile.n) {
      for (int64_t k = 0; k < p.k; k += tile.k) {
        f(Tile{m, n, k},
          Tile{std::min(tile.m, p.m - m), std::min(tile.n, p.n - n), std::min(tile.k, p.k - k)});
      }
    }
  }
}

Launch prepare_tiles(const Product& p, const Tile& tile, const void* a, const void* b,
                     const void* bias, void* c, void* workspace) {
  const int64_t size = size_of(p.dtype).count, out_size = size_of(p.out_dtype).count;
  std::vector<Launch> steps;
  for_each_tile(p, tile, [&](const Tile& at, const Tile& sizes) {
    steps.push_back(prepare_native(
        piece_of(p, sizes, at.k == 0),
        static_cast<const char*>(a) + (at.m * p.a_m + at.k * p.a_k) * size,
        static_cast<const char*>(b) + (at.k * p.b_k + at.n * p.b_n) * size,
        static_cast<const char*>(bias) + (p.bias ? at.n * out_size : 0),
        static_cast<char*>(c) + (at.m * p.c_m + at.n * p.c_n) * out_size, workspace));
  });
  if (steps.size() == 1) return steps[0];
  return [steps] {
    for (const Launch& step : steps) step();
  };
}

// Pieces of a and b are widened when they change, and a piece of c narrowed when its sum is done.
Launch prepare_widened(const Product& p, const Tile& tile, const void* a, const void* b,
                       const void* bias, void* c, void* workspace) {
  const Widened w = widen(piece_of(p, tile, true));
  auto* at = static_cast<char*>(workspace);
  auto* wide_a = reinterpret_cast<float*>(at);
  auto* wide_b = reinterpret_cast<float*>(at += w.a.count);
  auto* wide_c = reinterpret_cast<float*>(at += w.b.count);
  auto* wide_bias = reinterpret_cast<float*>(at += w.c.count);
  at += w.bias.count;
  // One prepared product per shape that a piece can have.
  const auto which = [=](const Tile& sizes, bool first) {
    return (sizes.m == tile.m) + 2 * (sizes.n == tile.n) + 4 * (sizes.k == tile.k) + 8 * first;
  };
  auto products = std::make_shared<std::array<Launch, 16>>();
  for_each_tile(p, tile, [&](const Tile& corner, const Tile& sizes) {
    Launch& launch = (*products)[which(sizes, corner.k == 0)];
    if (launch) return;
    launch = prepare_native(piece_of(w.product, sizes, corner.k == 0), wide_a, wide_b, wide_bias,
                            wide_c, at);
  });
  return [=] {
    const Product& q = w.product;
    Tile in_a{-1, -1, -1}, in_b{-1, -1, -1};
    for_each_tile(p, tile, [&](const Tile& corner, const Tile& sizes) {
      if (in_a.m != corner.m || in_a.k != corner.k) {
        const int64_t from = corner.m * p.a_m + corner.k * p.a_k;
        for_each_element(p.batch, sizes.m, sizes.k, p.a_batch, p.a_m, p.a_k, q.a_batch, q.a_m,
                         q.a_k, [&](int64_t i, int64_t to) {
                           wide_a[to] = static_cast<float>(load_element(a, p.dtype, from + i));
                         });
        in_a = corner;
      }
      if (in_b.k != corner.k || in_b.n != corner.n) {
        const int64_t from = corner.k * p.b_k + corner.n * p.b_n;
        for_each_element(p.batch, sizes.k, sizes.n, p.b_batch, p.b_k, p.b_n, q.b_batch, q.b_k,
                         q.b_n, [&](int64_t i, int64_t to) {
                           wide_b[to] = static_cast<float>(load_element(b, p.dtype, from + i));
                         });
        in_b = corner;
      }
      for (int64_t i = 0; p.bias && corner.k == 0 && i < sizes.n; ++i) {
        wide_bias[i] = static_cast<float>(load_element(bias, p.out_dtype, corner.n + i));
      }
      (*products)[which(sizes, corner.k == 0)]();
      if (corner.k + sizes.k < p.k) return;
      const int64_t to = corner.m * p.c_m + corner.n * p.c_n;
      for_each_element(p.batch, sizes.m, sizes.n, q.c_batch, q.c_m, q.c_n, p.c_batch, p.c_m, p.c_n,
                       [&](int64_t from, int64_t i) {
                         const double before =
                             p.accumulate ? load_element(c, p.out_dtype, to + i) : 0;
                         store_element(c, p.out_dtype, to + i, before + wide_c[from]);
                       });
    });
  };
}

}  // namespace

Bytes product_workspace(const Product& p) {
  if (!p.outer.empty()) {
    return std::max(product_workspace(inner_of(p, true)), product_workspace(inner_of(p, false)));
  }
  const bool native = is_native(p);
  if (const auto apart = unbatched(p, native)) return product_workspace(*apart);
  return tile_workspace(p, tile_within(p, native), native);
}

Launch prepare_product(const Product& p, const void* a, const void* b, const void* bias, void* c,
                       void* workspace) {
  CHECK(p.epilogue == Product::Epilogue::kNone, "an epilogue is for a device that has it");
  if (!p.outer.empty()) return prepare_outer(p, a, b, bias, c, workspace);
  const bool native = is_native(p);
  CHECK(native || p.dtype != Dtype::kF32 || p.out_dtype != Dtype::kF32,
        "oneDNN multiplies float32");
  if (const auto apart = unbatched(p, native)) {
    return prepare_product(*apart, a, b, bias, c, workspace);
  }
  const Tile tile = tile_within(p, native);
  return native ? prepare_tiles(p, tile, a, b, bias, c, workspace)
                : prepare_widened(p, tile, a, b, bias, c, workspace);
}

}  // namespace adjoint
