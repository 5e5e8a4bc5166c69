#include "kernels/product.h"

#include <algorithm>

#include "ops/product_letters.h"

namespace adjoint {

namespace {

constexpr int64_t kMostProducts = 64;  // into which one contraction is cut

struct Letter {
  char name;
  int64_t size, a = 0, b = 0, c = 0;  // strides in each tensor, 0 where it is absent
};

// Merges letters of one group, outermost first, where the strides of every tensor allow it.
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
  // An axis of size 1 gets the stride that a dense matrix would have.
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

}  // namespace adjoint
