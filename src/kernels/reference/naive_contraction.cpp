#include "kernels/reference/naive_contraction.h"

#include "device/parallel.h"
#include "kernels/reference/product.h"
#include "ops/product_letters.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

// Where every letter of an index map steps, as plain loops want it.
struct NaiveLetters {
  std::vector<ProductLetter> kept = {}, summed = {};
  bool adds = false, float64 = false;
};

NaiveLetters naive_letters(const std::string& map, const KernelCall& call) {
  const ProductLetters parsed = product_letters(map).value();
  const std::vector<Type>& in = call.call.inputs;
  NaiveLetters letters{.adds = has_addend(op_named(call.call.op), in.size())};
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
