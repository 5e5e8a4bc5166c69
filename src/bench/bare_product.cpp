#include "bench/bare_product.h"

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "cost/cost.h"
#include "kernels/cpu/onednn_engine.h"
#include "kernels/product.h"

namespace adjoint {

namespace {

using Memory = dnnl::memory;

std::optional<Memory::data_type> data_type(Dtype dtype) {
  if (dtype == Dtype::kF32) return Memory::data_type::f32;
  if (dtype == Dtype::kBF16) return Memory::data_type::bf16;
  return std::nullopt;
}

// The call as a product, by its op's index map.
std::optional<Product> product_of(const KernelCall& k) {
  const OpCall& call = k.call;
  if (!is_product(call.op)) return std::nullopt;
  const IndexMap map = index_map_of(call);
  // An axis that only ids reach: which rows are multiplied by which matrix is not in the map.
  if ((map.inputs[1] + map.outputs[0]).find('.') != std::string::npos) return std::nullopt;
  auto product = as_product(map.inputs[0] + "," + map.inputs[1] + "->" + map.outputs[0],
                            call.inputs[0], k.in_strides[0], call.inputs[1], k.in_strides[1],
                            k.outputs.back(), k.out_strides.back());
  if (!product) return product;
  const bool third = call.inputs.size() > 2;
  product->accumulate = has_addend(op_named(call.op), call.inputs.size());
  product->bias = third && call.inputs[2].rank() == 1;
  return product;
}

Memory::desc describe(const Product& p, Memory::data_type type, int64_t rows, int64_t columns,
                      const std::vector<int64_t>& batch, int64_t row, int64_t column) {
  Memory::dims dims(p.batch.begin(), p.batch.end()), strides(batch.begin(), batch.end());
  dims.insert(dims.end(), {rows, columns});
  strides.insert(strides.end(), {row, column});
  return {dims, type, strides};
}

Memory::dims from_b_dims(const Product& p) {
  Memory::dims dims(p.batch.begin(), p.batch.end());
  dims.insert(dims.end(), {p.k, p.n});
  return dims;
}

// One primitive and what it reads and writes.
struct Prepared {
  dnnl::engine engine = onednn_engine();
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  std::vector<Memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;
};

std::optional<Launch> prepare(const Product& p, BareLayout layout, const char* a, const char* b,
                              const char* bias, char* c) {
  const auto type = data_type(p.dtype), out_type = data_type(p.out_dtype);
  if (!type || !out_type) return std::nullopt;
  auto prepared = std::make_shared<Prepared>();
  const auto from_a = describe(p, *type, p.m, p.k, p.a_batch, p.a_m, p.a_k);
  const auto from_b = describe(p, *type, p.k, p.n, p.b_batch, p.b_k, p.b_n);
  const bool packed = layout == BareLayout::kPacked;
  const Memory::desc wanted_b(from_b_dims(p), *type, Memory::format_tag::any);
  const Memory::desc& weights = packed ? wanted_b : from_b;
  const auto into_c = describe(p, *out_type, p.m, p.n, p.c_batch, p.c_m, p.c_n);
  Memory::desc shift;
  if (p.bias) {
    Memory::dims ones(p.batch.size() + 1, 1), steps(p.batch.size() + 1, p.n);
    ones.push_back(p.n), steps.push_back(1);
    shift = {ones, *out_type, steps};
  }
  dnnl::primitive_attr attr;
  if (p.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  const auto& engine = prepared->engine;
  const auto chosen =
      p.bias ? dnnl::matmul::primitive_desc(engine, from_a, weights, shift, into_c, attr, true)
             : dnnl::matmul::primitive_desc(engine, from_a, weights, into_c, attr, true);
#else
  const dnnl::matmul::desc wanted = p.bias ? dnnl::matmul::desc(from_a, weights, shift, into_c)
                                           : dnnl::matmul::desc(from_a, weights, into_c);
  const dnnl::matmul::primitive_desc chosen(wanted, attr, prepared->engine, true);
#endif
  if (!chosen) return std::nullopt;
  prepared->primitive = dnnl::matmul(chosen);
  const auto bind = [&](int argument, const Memory::desc& desc, const void* data) {
    prepared->memories.emplace_back(desc, prepared->engine, const_cast<void*>(data));
    prepared->arguments.push_back({argument, prepared->memories.back().get()});
  };
  bind(DNNL_ARG_SRC, from_a, a);
  if (packed) {
    // A packed copy, made once, so that the loop does not pay for it.
    Memory plain(from_b, prepared->engine, const_cast<char*>(b));
    Memory laid_out(chosen.weights_desc(), prepared->engine);
    dnnl::reorder(plain, laid_out).execute(prepared->stream, plain, laid_out);
    prepared->stream.wait();
    prepared->memories.push_back(laid_out);
    prepared->arguments.push_back({DNNL_ARG_WEIGHTS, prepared->memories.back().get()});
  } else {
    bind(DNNL_ARG_WEIGHTS, from_b, b);
  }
  bind(DNNL_ARG_DST, into_c, c);
  if (p.bias) bind(DNNL_ARG_BIAS, shift, bias);
  return Launch([prepared] {
    dnnl_primitive_execute(prepared->primitive.get(), prepared->stream.get(),
                           static_cast<int>(prepared->arguments.size()),
                           prepared->arguments.data());
    dnnl_stream_wait(prepared->stream.get());
  });
}

// For outer axes, which no single product covers, the primitive runs once per step of them.
std::optional<Launch> prepare_all(Product p, BareLayout layout, const char* a, const char* b,
                                  const char* bias, char* c) {
  if (p.outer.empty()) return prepare(p, layout, a, b, bias, c);
  const Product::Outer axis = p.outer.front();
  p.outer.erase(p.outer.begin());
  const int64_t size = size_of(p.dtype).count, out_size = size_of(p.out_dtype).count;
  std::vector<Launch> steps;
  for (int64_t i = 0; i < axis.size; ++i) {
    Product inner = p;
    inner.accumulate = p.accumulate || (axis.summed && i > 0);
    const auto step = prepare_all(inner, layout, a + i * axis.a * size, b + i * axis.b * size, bias,
                                  c + i * axis.c * out_size);
    if (!step) return std::nullopt;
    steps.push_back(*step);
  }
  return Launch([steps] {
    for (const Launch& step : steps) step();
  });
}

}  // namespace

std::optional<Launch> bare_product(const KernelCall& call, const Pointers& at, BareLayout layout) {
  const auto product = product_of(call);
  if (!product) return std::nullopt;
  const void* bias = product->bias ? at.in[2] : nullptr;
  return prepare_all(*product, layout, static_cast<const char*>(at.in[0]),
                     static_cast<const char*>(at.in[1]), static_cast<const char*>(bias),
                     static_cast<char*>(at.out.back()));
}

}  // namespace adjoint
