#include "kernels/cpu/onednn_matmul.h"

#include <algorithm>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"
#include "kernels/cpu/onednn_engine.h"

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
  // The argument that was bound as the n-th is elsewhere now.
  void rebind(size_t n, const void* data) const {
    const dnnl_status_t status =
        dnnl_memory_set_data_handle(memories[n].get(), const_cast<void*>(data));
    CHECK(status == dnnl_success, "an operand of a prepared product has an address");
  }
  void run() const {
    const dnnl_status_t status = dnnl_primitive_execute(
        primitive.get(), stream.get(), static_cast<int>(arguments.size()), arguments.data());
    CHECK(status == dnnl_success, "a prepared product runs");
    dnnl_stream_wait(stream.get());
  }
};

}  // namespace

std::optional<Bytes> matmul_workspace(const Product& p) {
  const auto native = native_for(p);
  return native ? std::optional(native->workspace()) : std::nullopt;
}

Launch prepare_matmul(const Product& p, const void* a, const void* b, const void* bias, void* c,
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

MatmulAt prepare_matmul_at(const Product& p, void* workspace) {
  const auto native = native_for(p);
  CHECK(native && !p.bias, "oneDNN multiplies what it was asked for");
  const Descriptions d = describe(p, p.dtype, p.out_dtype);
  void* scratch = static_cast<std::byte*>(workspace) + native->packed().count;
  auto multiply = std::make_shared<Prepared>(Prepared{dnnl::matmul(native->multiply)});
  multiply->bind(DNNL_ARG_SRC, d.a, nullptr);
  multiply->bind(DNNL_ARG_WEIGHTS, native->multiply.weights_desc(),
                 native->pack ? workspace : nullptr);
  multiply->bind(DNNL_ARG_DST, d.c, nullptr);
  multiply->bind(DNNL_ARG_SCRATCHPAD, native->multiply.scratchpad_desc(), scratch);
  std::shared_ptr<Prepared> pack;
  if (native->pack) {
    pack = std::make_shared<Prepared>(Prepared{dnnl::reorder(*native->pack)});
    pack->bind(DNNL_ARG_FROM, d.b, nullptr);
    pack->bind(DNNL_ARG_TO, native->multiply.weights_desc(), workspace);
    pack->bind(DNNL_ARG_SCRATCHPAD, native->pack->scratchpad_desc(), scratch);
  }
  return [=](const void* a, const void* b, void* c) {
    multiply->rebind(0, a);
    if (pack) {
      pack->rebind(0, b);
      pack->run();
    } else {
      multiply->rebind(1, b);
    }
    multiply->rebind(2, c);
    multiply->run();
  };
}

}  // namespace adjoint
