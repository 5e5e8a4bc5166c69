#include "ops/matmul.h"

#include <algorithm>

#include "base/error.h"
#include "device/parallel.h"
#include "ops/elements.h"
#include "ops/layout.h"
#include "ops/reference_product.h"

namespace adjoint {

namespace {

constexpr int64_t kMostProducts = 64;  // that one contraction is cut into

struct Letter {
  char name;
  int64_t size, a = 0, b = 0, c = 0;  // strides in each tensor, 0 where it is absent
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
                                  const Strides& c_strides, bool padding) {
  const ProductLetters letters = product_letters(map).value();
  std::vector<Letter> batch, m, n, k;
  const auto stride = [](const std::string& in, const Strides& strides, char letter) {
    const size_t at = in.find(letter);
    return at == std::string::npos ? 0 : strides[at];
  };
  const auto size = [&](char letter, int64_t logical) {
    int64_t physical = INT64_MAX;
    for (const auto& [in, type] : {std::pair{&letters.a, &a}, {&letters.b, &b}, {&letters.c, &c}}) {
      const size_t at = in->find(letter);
      if (at != std::string::npos) physical = std::min(physical, type->axes[at].physical());
    }
    return padding ? physical : logical;
  };
  const auto gather = [&](const std::string& in, const Type& type, std::string seen) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (seen.find(in[i]) != std::string::npos) continue;
      const bool in_a = letters.a.find(in[i]) != std::string::npos;
      const bool in_b = letters.b.find(in[i]) != std::string::npos;
      const bool in_c = letters.c.find(in[i]) != std::string::npos;
      const Letter letter{in[i], size(in[i], type.dim(static_cast<int>(i))),
                          stride(letters.a, a_strides, in[i]), stride(letters.b, b_strides, in[i]),
                          stride(letters.c, c_strides, in[i])};
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

std::optional<Product> product_on_cpu(const std::string& map, const KernelCall& k) {
  const std::vector<Type>& in = k.call.inputs;
  if (in[0].dtype == Dtype::kF64) return std::nullopt;
  CHECK(lies_densely(in[0], k.in_strides[0]) && lies_densely(in[1], k.in_strides[1]) &&
            lies_densely(k.outputs[0], k.out_strides[0]),
        "the operands and the result of a product on the CPU lie densely");
  auto product = as_product(map, in[0], dense_strides(in[0]), in[1], dense_strides(in[1]),
                            k.outputs[0], dense_strides(k.outputs[0]));
  if (product) product->workspace_cap = k.workspace_cap;
  return product;
}

namespace {

// Where every letter of an index map steps, as plain loops want it.
struct NaiveLetters {
  std::vector<ProductLetter> kept = {}, summed = {};
  bool adds = false, float64 = false;
};

NaiveLetters naive_letters(const std::string& map, const KernelCall& call) {
  const ProductLetters parsed = product_letters(map).value();
  const std::vector<Type>& in = call.call.inputs;
  NaiveLetters letters{.adds = call.call.op == "contract" && in.size() > 2};
  std::string seen;
  const auto collect = [&](const std::string& of, const Type& type) {
    for (size_t i = 0; i < of.size(); ++i) {
      if (seen.find(of[i]) != std::string::npos) continue;
      seen += of[i];
      const auto stride = [&](const std::string& names, const Strides& strides) {
        const size_t found = names.find(of[i]);
        return found == std::string::npos ? 0 : strides[found];
      };
      const ProductLetter l{.size = type.dim(static_cast<int>(i)),
                            .a = stride(parsed.a, call.in_strides[0]),
                            .b = stride(parsed.b, call.in_strides[1]),
                            .c = stride(parsed.c, call.out_strides[0]),
                            .addend = letters.adds ? stride(parsed.c, call.in_strides[2]) : 0};
      (parsed.c.find(of[i]) != std::string::npos ? letters.kept : letters.summed).push_back(l);
    }
  };
  collect(parsed.c, call.outputs[0]);
  collect(parsed.a, in[0]);
  collect(parsed.b, in[1]);
  letters.float64 = in[0].dtype == Dtype::kF64 && in[1].dtype == Dtype::kF64 &&
                    call.outputs[0].dtype == Dtype::kF64;
  return letters;
}

}  // namespace

Bytes naive_contract_workspace(const std::string& map, const KernelCall& call) {
  const NaiveLetters letters = naive_letters(map, call);
  return letters.float64 ? float64_product_workspace(letters.kept, letters.summed) : Bytes{0};
}

Launch prepare_naive_contract(const std::string& map, const KernelCall& call, const Pointers& at) {
  const auto [kept, summed, adds, float64] = naive_letters(map, call);
  if (float64) {
    Pointers operands = at;
    operands.in.resize(adds ? 3 : 2);
    return prepare_float64_product(kept, summed, operands);
  }
  const Type c_type = call.outputs[0];
  const Dtype a_dtype = call.call.inputs[0].dtype, b_dtype = call.call.inputs[1].dtype;
  int64_t results = 1, terms = 1;
  for (const ProductLetter& l : kept) results *= l.size;
  for (const ProductLetter& l : summed) terms *= l.size;
  // Where the terms of a sum lie, worked out once.
  std::vector<std::pair<int64_t, int64_t>> steps(terms);
  for (int64_t t = 0; t < terms; ++t) {
    int64_t inner = t;
    for (size_t i = summed.size(); i-- > 0;) {
      const int64_t x = inner % summed[i].size;
      steps[t].first += x * summed[i].a, steps[t].second += x * summed[i].b;
      inner /= summed[i].size;
    }
  }
  return [=, kept = kept, adds = adds] {
    parallel_for(results, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        int64_t rest = r, a = 0, b = 0, c = 0, addend = 0;
        for (size_t i = kept.size(); i-- > 0;) {
          const int64_t x = rest % kept[i].size;
          a += x * kept[i].a, b += x * kept[i].b, c += x * kept[i].c, addend += x * kept[i].addend;
          rest /= kept[i].size;
        }
        double sum = adds ? load_element(at.in[2], c_type.dtype, addend) : 0;
        for (const auto& [ta, tb] : steps) {
          sum += load_element(at.in[0], a_dtype, a + ta) * load_element(at.in[1], b_dtype, b + tb);
        }
        store_element(at.out[0], c_type.dtype, c, sum);
      }
    });
  };
}

}  // namespace adjoint
