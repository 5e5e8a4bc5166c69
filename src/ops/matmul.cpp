#include "ops/matmul.h"

#include <algorithm>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"
#include "device/parallel.h"
#include "ops/elements.h"

namespace adjoint {

namespace {

constexpr int64_t kMostProducts = 64;  // that one contraction is cut into

struct Letter {
  char name;
  int64_t size, a = 0, b = 0, c = 0;  // strides in each tensor, 0 where it is absent
  int64_t addend = 0;
};

// Letters of one group, outermost first, merged into one where every tensor steps evenly.
std::vector<Letter> merged(std::vector<Letter> group) {
  std::vector<Letter> result;
  for (const Letter& l : group) {
    if (l.size == 1) continue;
    if (!result.empty()) {
      Letter& last = result.back();
      if (last.a == l.a * l.size && last.b == l.b * l.size && last.c == l.c * l.size) {
        last = {l.name, last.size * l.size, l.a, l.b, l.c};
        continue;
      }
    }
    result.push_back(l);
  }
  return result;
}

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

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

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

// The primitive for this shape on this machine; nothing where oneDNN has none for the dtype.
std::optional<dnnl::matmul::primitive_desc> primitive_for(const Product& p, Dtype dtype,
                                                          Dtype out_dtype) {
  if (data_type(dtype) == dnnl::memory::data_type::undef ||
      data_type(out_dtype) == dnnl::memory::data_type::undef) {
    return std::nullopt;
  }
  const Descriptions d = describe(p, dtype, out_dtype);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc primitive =
      p.bias ? dnnl::matmul::primitive_desc(engine(), d.a, d.b, d.bias, d.c, attr, true)
             : dnnl::matmul::primitive_desc(engine(), d.a, d.b, d.c, attr, true);
#else
  const dnnl::matmul::desc desc =
      p.bias ? dnnl::matmul::desc(d.a, d.b, d.bias, d.c) : dnnl::matmul::desc(d.a, d.b, d.c);
  const dnnl::matmul::primitive_desc primitive(desc, attr, engine(), true);
#endif
  if (!primitive) return std::nullopt;
  return primitive;
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

}  // namespace

std::optional<ProductLetters> product_letters(const std::string& map) {
  const size_t comma = map.find(','), arrow = map.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return std::nullopt;
  }
  return ProductLetters{map.substr(0, comma), map.substr(comma + 1, arrow - comma - 1),
                        map.substr(arrow + 2)};
}

std::optional<Product> as_product(const std::string& map, const Type& a, const Strides& a_strides,
                                  const Type& b, const Strides& b_strides, const Type& c,
                                  const Strides& c_strides) {
  const ProductLetters letters = product_letters(map).value();
  std::vector<Letter> batch, m, n, k;
  const auto stride = [](const std::string& in, const Strides& strides, char letter) {
    const size_t at = in.find(letter);
    return at == std::string::npos ? 0 : strides[at];
  };
  const auto gather = [&](const std::string& in, const Type& type, std::string seen) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (seen.find(in[i]) != std::string::npos) continue;
      const bool in_a = letters.a.find(in[i]) != std::string::npos;
      const bool in_b = letters.b.find(in[i]) != std::string::npos;
      const bool in_c = letters.c.find(in[i]) != std::string::npos;
      const Letter letter{in[i], type.dim(static_cast<int>(i)), stride(letters.a, a_strides, in[i]),
                          stride(letters.b, b_strides, in[i]), stride(letters.c, c_strides, in[i])};
      (in_a && in_b && in_c ? batch : in_a && in_c ? m : in_b && in_c ? n : k).push_back(letter);
    }
  };
  gather(letters.c, c, "");
  gather(letters.a, a, letters.c);
  gather(letters.b, b, letters.c + letters.a);
  batch = merged(batch), m = merged(m), n = merged(n), k = merged(k);
  if (batch.size() > 4) return std::nullopt;
  std::vector<Product::Outer> outer;
  int64_t products = 1;
  for (std::vector<Letter>* group : {&m, &n, &k}) {
    for (; group->size() > 1; group->erase(group->begin())) {
      const Letter& l = group->front();
      outer.push_back({l.size, l.a, l.b, l.c, group == &k});
      products *= l.size;
    }
  }
  if (products > kMostProducts) return std::nullopt;
  Product p{.outer = std::move(outer),
            .batch = {},
            .a_batch = {},
            .b_batch = {},
            .c_batch = {},
            .dtype = a.dtype,
            .out_dtype = c.dtype};
  for (const Letter& l : batch) {
    p.batch.push_back(l.size);
    p.a_batch.push_back(l.a);
    p.b_batch.push_back(l.b);
    p.c_batch.push_back(l.c);
  }
  // An axis of size 1 is stepped over as if the matrix were dense there.
  if (!n.empty()) p.n = n[0].size;
  if (!k.empty()) p.k = k[0].size;
  if (!m.empty()) p.m = m[0].size;
  p.a_k = k.empty() ? 1 : k[0].a;
  p.b_n = n.empty() ? 1 : n[0].b;
  p.c_n = n.empty() ? 1 : n[0].c;
  p.a_m = m.empty() ? std::max<int64_t>(1, p.k * p.a_k) : m[0].a;
  p.b_k = k.empty() ? std::max<int64_t>(1, p.n * p.b_n) : k[0].b;
  p.c_m = m.empty() ? std::max<int64_t>(1, p.n * p.c_n) : m[0].c;
  return p;
}

namespace {

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

}  // namespace

Bytes product_workspace(const Product& p) {
  if (!p.outer.empty()) {
    return std::max(product_workspace(inner_of(p, true)), product_workspace(inner_of(p, false)));
  }
  if (const auto primitive = primitive_for(p, p.dtype, p.out_dtype)) {
    return {static_cast<int64_t>(primitive->scratchpad_desc().get_size())};
  }
  const Widened w = widen(p);
  return w.total() + product_workspace(w.product);
}

Launch prepare_product(const Product& p, const void* a, const void* b, const void* bias, void* c,
                       void* workspace) {
  if (!p.outer.empty()) return prepare_outer(p, a, b, bias, c, workspace);
  const auto primitive = primitive_for(p, p.dtype, p.out_dtype);
  if (!primitive) {
    CHECK(p.dtype != Dtype::kF32 || p.out_dtype != Dtype::kF32, "oneDNN multiplies float32");
    const Widened w = widen(p);
    auto* at = static_cast<char*>(workspace);
    auto* wide_a = reinterpret_cast<float*>(at);
    auto* wide_b = reinterpret_cast<float*>(at += w.a.count);
    auto* wide_c = reinterpret_cast<float*>(at += w.b.count);
    auto* wide_bias = reinterpret_cast<float*>(at += w.c.count);
    at += w.bias.count;
    const Launch multiply = prepare_product(w.product, wide_a, wide_b, wide_bias, wide_c, at);
    return [=] {
      const Product& q = w.product;
      for_each_element(p.batch, p.m, p.k, p.a_batch, p.a_m, p.a_k, q.a_batch, q.a_m, q.a_k,
                       [&](int64_t from, int64_t to) {
                         wide_a[to] = static_cast<float>(load_element(a, p.dtype, from));
                       });
      for_each_element(p.batch, p.k, p.n, p.b_batch, p.b_k, p.b_n, q.b_batch, q.b_k, q.b_n,
                       [&](int64_t from, int64_t to) {
                         wide_b[to] = static_cast<float>(load_element(b, p.dtype, from));
                       });
      for (int64_t i = 0; p.bias && i < p.n; ++i) {
        wide_bias[i] = static_cast<float>(load_element(bias, p.out_dtype, i));
      }
      multiply();
      for_each_element(p.batch, p.m, p.n, q.c_batch, q.c_m, q.c_n, p.c_batch, p.c_m, p.c_n,
                       [&](int64_t from, int64_t to) {
                         const double before = p.accumulate ? load_element(c, p.out_dtype, to) : 0;
                         store_element(c, p.out_dtype, to, before + wide_c[from]);
                       });
    };
  }
  struct Prepared {
    dnnl::matmul primitive;
    dnnl::stream stream;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t>
        arguments;  // as the C interface takes them: nothing to build in a step
  };
  auto prepared = std::make_shared<Prepared>();
  prepared->primitive = dnnl::matmul(*primitive);
  prepared->stream = dnnl::stream(engine());
  const auto bind = [&](int argument, const dnnl::memory::desc& desc, const void* data) {
    prepared->memories.emplace_back(desc, engine(), const_cast<void*>(data));
    prepared->arguments.push_back({argument, prepared->memories.back().get()});
  };
  const Descriptions d = describe(p, p.dtype, p.out_dtype);
  bind(DNNL_ARG_SRC, d.a, a);
  bind(DNNL_ARG_WEIGHTS, d.b, b);
  bind(DNNL_ARG_DST, d.c, c);
  if (p.bias) bind(DNNL_ARG_BIAS, d.bias, bias);
  bind(DNNL_ARG_SCRATCHPAD, primitive->scratchpad_desc(), workspace);
  return [prepared] {
    const dnnl_status_t status = dnnl_primitive_execute(
        prepared->primitive.get(), prepared->stream.get(),
        static_cast<int>(prepared->arguments.size()), prepared->arguments.data());
    CHECK(status == dnnl_success, "a prepared product runs");
    dnnl_stream_wait(prepared->stream.get());
  };
}

Launch prepare_naive_contract(const std::string& map, const KernelCall& call, const Pointers& at) {
  const ProductLetters parsed = product_letters(map).value();
  const Type c_type = call.outputs[0];
  const bool adds = call.call.op == "contract" && call.call.inputs.size() > 2;
  std::vector<Letter> kept, summed;
  std::string seen;
  const auto collect = [&](const std::string& in, const Type& type) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (seen.find(in[i]) != std::string::npos) continue;
      seen += in[i];
      const auto stride = [&](const std::string& letters, const Strides& strides) {
        const size_t found = letters.find(in[i]);
        return found == std::string::npos ? 0 : strides[found];
      };
      const Letter l{in[i],
                     type.dim(static_cast<int>(i)),
                     stride(parsed.a, call.in_strides[0]),
                     stride(parsed.b, call.in_strides[1]),
                     stride(parsed.c, call.out_strides[0]),
                     adds ? stride(parsed.c, call.in_strides[2]) : 0};
      (parsed.c.find(in[i]) != std::string::npos ? kept : summed).push_back(l);
    }
  };
  collect(parsed.c, c_type);
  collect(parsed.a, call.call.inputs[0]);
  collect(parsed.b, call.call.inputs[1]);
  int64_t results = 1, terms = 1;
  for (const Letter& l : kept) results *= l.size;
  for (const Letter& l : summed) terms *= l.size;
  const Dtype a_dtype = call.call.inputs[0].dtype, b_dtype = call.call.inputs[1].dtype;
  // Where the terms of a sum lie, worked out once: a step of the reference is mostly this loop.
  std::vector<std::pair<int64_t, int64_t>> steps(terms);
  for (int64_t t = 0; t < terms; ++t) {
    int64_t inner = t;
    for (size_t i = summed.size(); i-- > 0;) {
      const int64_t x = inner % summed[i].size;
      steps[t].first += x * summed[i].a, steps[t].second += x * summed[i].b;
      inner /= summed[i].size;
    }
  }
  return [=] {
    parallel_for(results, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        int64_t rest = r, a = 0, b = 0, c = 0, addend = 0;
        for (size_t i = kept.size(); i-- > 0;) {
          const int64_t x = rest % kept[i].size;
          a += x * kept[i].a, b += x * kept[i].b, c += x * kept[i].c, addend += x * kept[i].addend;
          rest /= kept[i].size;
        }
        double sum = adds ? load_element(at.in[2], c_type.dtype, addend) : 0;
        if (a_dtype == Dtype::kF64 && b_dtype == Dtype::kF64) {
          const auto* from_a = static_cast<const double*>(at.in[0]) + a;
          const auto* from_b = static_cast<const double*>(at.in[1]) + b;
          // Four sums side by side, so that no addition waits for the one before it.
          double sums[4] = {};
          for (size_t t = 0; t < steps.size(); ++t) {
            sums[t % 4] += from_a[steps[t].first] * from_b[steps[t].second];
          }
          sum += (sums[0] + sums[1]) + (sums[2] + sums[3]);
        } else {
          for (const auto& [ta, tb] : steps) {
            sum +=
                load_element(at.in[0], a_dtype, a + ta) * load_element(at.in[1], b_dtype, b + tb);
          }
        }
        store_element(at.out[0], c_type.dtype, c, sum);
      }
    });
  };
}

}  // namespace adjoint
