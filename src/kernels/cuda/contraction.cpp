#include "kernels/cuda/contraction.h"

#include "kernels/cuda/cublaslt/product.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/thin_product.h"
#include "ops/gelu.h"
#include "ops/product_letters.h"

namespace adjoint {

namespace {

bool has_bias(const KernelCall& k) {
  return k.call.inputs.size() > 2 && k.call.inputs[2].rank() < k.outputs[0].rank();
}

// Padding is multiplied too, where all operands have it: a library's fast kernels take lengths that
// are multiples of 8.
bool takes_padding(const KernelCall& k) {
  if (k.call.inputs.size() < 3) return true;
  return k.call.inputs[2].axes.back().physical() == k.outputs[0].axes.back().physical() &&
         (has_bias(k) ||
          lie_alike(k.call.inputs[2], k.in_strides[2], k.outputs[0], k.out_strides[0]));
}

std::optional<Product> product_of(const std::string& map, const KernelCall& k) {
  const OpCall& call = k.call;
  if (call.inputs[0].dtype == Dtype::kF64) return std::nullopt;
  const bool adds = call.inputs.size() > 2 && !has_bias(k);
  if (adds && k.in_strides[2] != k.out_strides[0]) return std::nullopt;
  auto product = as_product(map, call.inputs[0], k.in_strides[0], call.inputs[1], k.in_strides[1],
                            k.outputs[0], k.out_strides[0], takes_padding(k));
  if (!product) return product;
  product->bias = has_bias(k);
  product->accumulate = adds;
  product->tf32 = call.text("math") == "tf32";
  product->workspace_cap = k.workspace_cap;
  return cublaslt_takes(*product) ? product : std::nullopt;
}

// Sums over padding want it cleared first, which few rows are not worth.
bool is_thin(const std::optional<Product>& product, const KernelCall& k) {
  return product && thin_on_cuda(*product) && product->k == k.call.inputs[0].dim(-1);
}

bool has_epilogues(Dtype dtype) { return dtype == Dtype::kBF16 || dtype == Dtype::kF16; }

// The same with gelu behind it, or its gradient.
std::optional<Product> product_with(Product::Epilogue epilogue, const std::string& map,
                                    const KernelCall& k) {
  if (!has_epilogues(k.outputs[0].dtype)) return std::nullopt;
  auto product = product_of(map, k);
  if (!product) return product;
  product->epilogue = epilogue;
  return cublaslt_takes(*product) ? product : std::nullopt;
}

std::vector<std::string> keys_of(const std::optional<Product>& product) {
  std::vector<std::string> keys;
  if (!product) return keys;
  const auto calls = cublaslt_calls(*product);
  for (const ProductCall& call : *calls) keys.push_back(product_key(call));
  return keys;
}

// Padding may hold anything, so a product that sums over it clears it first, in both operands.
Launch clear_summed_padding(const std::string& map, const KernelCall& k, const Pointers& at) {
  const ProductLetters letters = product_letters(map).value();
  std::vector<Launch> clears;
  for (const size_t i : {0, 1}) {
    const std::string& own = i == 0 ? letters.a : letters.b;
    const std::string& other = i == 0 ? letters.b : letters.a;
    const Type& type = k.call.inputs[i];
    // What is multiplied, padding of summed axes included.
    Type multiplied = type;
    for (size_t a = 0; a < own.size(); ++a) {
      const size_t there = other.find(own[a]);
      const bool summed = letters.c.find(own[a]) == std::string::npos;
      if (!summed || there == std::string::npos) continue;
      multiplied.axes[a] = {
          type.axes[a].name,
          std::min(type.axes[a].physical(), k.call.inputs[1 - i].axes[there].physical())};
    }
    for (size_t a = 0; a < own.size(); ++a) {
      const int64_t size = multiplied.axes[a].size;
      if (size == type.axes[a].size) continue;
      Type padding = multiplied;
      padding.axes[a] = {type.axes[a].name, size - type.axes[a].size};
      const int64_t begin = type.axes[a].size * k.in_strides[i][a] * size_of(type.dtype).count;
      void* to = const_cast<char*>(static_cast<const char*>(at.in[i])) + begin;
      clears.push_back(clear_cuda(padding, k.in_strides[i], to, at.stream));
    }
  }
  if (clears.empty()) return nullptr;
  return [clears] {
    for (const Launch& clear : clears) clear();
  };
}

// The product by cuBLASLt, with what it wants beforehand; nothing where it has no algorithm.
std::optional<Launch> multiply(const std::string& map, const KernelCall& k, const Product& product,
                               const ProductPointers& pointers, const Pointers& at) {
  const auto alone = tuned_product_cuda(product, pointers, at, k.deterministic, k.may_time);
  const Launch clear = takes_padding(k) ? clear_summed_padding(map, k, at) : nullptr;
  if (!alone || !clear) return alone;
  return [clear, alone = *alone] {
    clear();
    alone();
  };
}

}  // namespace

Bytes contraction_cuda_workspace(const std::string& map, const KernelCall& k) {
  const auto product = product_of(map, k);
  return product && !is_thin(product, k) ? product_cuda_workspace(*product) : Bytes{0};
}

std::vector<std::string> contraction_cuda_products(const std::string& map, const KernelCall& k) {
  const auto product = product_of(map, k);
  return is_thin(product, k) ? std::vector<std::string>{} : keys_of(product);
}
std::vector<std::string> gelu_contraction_cuda_products(const std::string& map,
                                                        const KernelCall& k) {
  return keys_of(product_with(Product::Epilogue::kGelu, map, k));
}
std::vector<std::string> gelu_grad_contraction_cuda_products(const std::string& map,
                                                             const KernelCall& k) {
  return keys_of(product_with(Product::Epilogue::kGeluGrad, map, k));
}

bool lie_alike(const Type& a, const Strides& a_strides, const Type& b, const Strides& b_strides) {
  // Of the first axis the strides say nothing.
  return same_shape(a, b) && a_strides == b_strides &&
         (a.rank() == 0 || a.axes[0].physical() == b.axes[0].physical());
}

bool product_epilogue_takes(const Body& body, Dtype dtype) {
  static const std::string gradient = print(gelu_gradient());
  return has_epilogues(dtype) && print(body) == gradient;
}

std::optional<Launch> gelu_contraction_cuda(const std::string& map, const KernelCall& k,
                                            const Pointers& at) {
  const auto product = product_with(Product::Epilogue::kGelu, map, k);
  if (!product) return std::nullopt;
  return multiply(map, k, *product,
                  {.a = at.in[0],
                   .b = at.in[1],
                   .c = at.out[0],
                   .bias = product->bias ? at.in[2] : nullptr,
                   .aux = at.out[1]},
                  at);
}

std::optional<Launch> gelu_grad_contraction_cuda(const std::string& map, const KernelCall& k,
                                                 const Pointers& at) {
  const auto product = product_with(Product::Epilogue::kGeluGrad, map, k);
  if (!product) return std::nullopt;
  // The library reads it, and its interface says otherwise.
  void* x = const_cast<void*>(at.in[2]);
  return multiply(map, k, *product, {.a = at.in[0], .b = at.in[1], .c = at.out[0], .aux = x}, at);
}

Launch contraction_cuda(const std::string& map, const KernelCall& k, const Pointers& at) {
  const auto product = product_of(map, k);
  if (!product) return naive_contract_cuda(map, k, at);
  const void* third = k.call.inputs.size() > 2 ? at.in[2] : nullptr;
  const ProductPointers places{.a = at.in[0],
                               .b = at.in[1],
                               .c = at.out[0],
                               .bias = product->bias ? third : nullptr,
                               .addend = product->bias ? nullptr : third};
  if (is_thin(product, k)) {
    return thin_product_cuda(*product, places, at);
  }
  const auto launch = multiply(map, k, *product, places, at);
  return launch ? *launch : naive_contract_cuda(map, k, at);
}

}  // namespace adjoint
