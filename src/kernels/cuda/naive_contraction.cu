// A product of any two objects by an index map, a thread for each result: the way that is left when
// strides or dtypes are none that a library takes. Terms are summed in float32 (float64 of float64)
// in an order that the shapes fix.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/kernels.h"
#include "ops/product_letters.h"

namespace adjoint {

namespace {

constexpr int kMostLetters = 12;

struct Letter {
  int64_t size, a, b, c, addend;  // strides in each tensor, 0 where it is absent
};
struct Letters {
  int64_t count = 1;
  int rank = 0;
  Letter of[kMostLetters] = {};
};
struct Contraction {
  Letters kept, outer;  // of the result, and of a sum but its innermost
  Letter inner;
  Dtype addend, out;
};

template <class T>
__global__ void contract(const __grid_constant__ Contraction x, const T* __restrict__ a,
                         const T* __restrict__ b, const void* addend, void* c) {
  using W = typename Wide<T>::type;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t r = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; r < x.kept.count; r += step) {
    int64_t rest = r, at_a = 0, at_b = 0, at_c = 0, at_addend = 0;
    for (int i = x.kept.rank - 1; i >= 0; --i) {
      const Letter& l = x.kept.of[i];
      const int64_t k = rest % l.size;
      at_a += k * l.a, at_b += k * l.b, at_c += k * l.c, at_addend += k * l.addend;
      rest /= l.size;
    }
    W sums[4] = {};  // side by side, so that no addition waits for the one before it
    for (int64_t o = 0; o < x.outer.count; ++o) {
      const T *from_a = a + at_a, *from_b = b + at_b;
      rest = o;
      for (int i = x.outer.rank - 1; i >= 0; --i) {
        const Letter& l = x.outer.of[i];
        from_a += rest % l.size * l.a, from_b += rest % l.size * l.b;
        rest /= l.size;
      }
      const auto term = [&](int64_t t) {
        return widen(from_a[t * x.inner.a]) * widen(from_b[t * x.inner.b]);
      };
      int64_t t = 0;
      for (; t + 4 <= x.inner.size; t += 4) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[k] += term(t + k);
      }
      for (; t < x.inner.size; ++t) sums[0] += term(t);
    }
    W sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (addend) sum += load_float<W>(addend, x.addend, at_addend);
    store_float(c, x.out, at_c, sum);
  }
}

// Outermost first, merged into one where every tensor steps evenly. Not the letters of a sum: its
// order would be that of the strides.
std::vector<Letter> merged(const std::vector<Letter>& letters) {
  std::vector<Letter> result;
  for (const Letter& l : letters) {
    if (!result.empty()) {
      Letter& last = result.back();
      if (last.a == l.a * l.size && last.b == l.b * l.size && last.c == l.c * l.size &&
          last.addend == l.addend * l.size) {
        last = {last.size * l.size, l.a, l.b, l.c, l.addend};
        continue;
      }
    }
    result.push_back(l);
  }
  return result;
}

Letters as_letters(const std::vector<Letter>& letters, const std::string& map) {
  if (letters.size() > kMostLetters) {
    throw MachineError("a contraction \"" + map + "\": CUDA takes " + std::to_string(kMostLetters) +
                       " axes that do not merge");
  }
  Letters result{.rank = static_cast<int>(letters.size())};
  for (int i = 0; i < result.rank; ++i) {
    result.of[i] = letters[i];
    result.count *= letters[i].size;
  }
  return result;
}

Contraction contraction_of(const std::string& map, const KernelCall& call) {
  const ProductLetters parsed = product_letters(map).value();
  // What is added is like the result, or a bias: its last axis alone.
  const size_t operands = call.call.inputs.size();
  const bool adds = has_addend(op_named(call.call.op), operands);
  const std::string addend = operands < 3 ? ""
                             : adds       ? parsed.c
                                          : parsed.c.substr(parsed.c.size() - 1);
  std::vector<Letter> kept, summed;
  std::string seen;
  const auto collect = [&](const std::string& in, const Type& type) {
    for (size_t i = 0; i < in.size(); ++i) {
      if (seen.find(in[i]) != std::string::npos) continue;
      seen += in[i];
      if (type.dim(static_cast<int>(i)) == 1) continue;
      const auto stride = [&](const std::string& letters, const Strides& strides) {
        const size_t found = letters.find(in[i]);
        return found == std::string::npos ? 0 : strides[found];
      };
      const Letter letter{type.dim(static_cast<int>(i)), stride(parsed.a, call.in_strides[0]),
                          stride(parsed.b, call.in_strides[1]),
                          stride(parsed.c, call.out_strides[0]),
                          operands > 2 ? stride(addend, call.in_strides[2]) : 0};
      (parsed.c.find(in[i]) != std::string::npos ? kept : summed).push_back(letter);
    }
  };
  collect(parsed.c, call.outputs[0]);
  collect(parsed.a, call.call.inputs[0]);
  collect(parsed.b, call.call.inputs[1]);
  kept = merged(kept);
  Letter inner{1, 0, 0, 0, 0};
  if (!summed.empty()) {
    inner = summed.back();
    summed.pop_back();
  }
  return {.kept = as_letters(kept, map),
          .outer = as_letters(summed, map),
          .inner = inner,
          .addend = operands > 2 ? call.call.inputs[2].dtype : Dtype::kF32,
          .out = call.outputs[0].dtype};
}

template <class T>
Launch prepare(const Contraction& x, const Pointers& at) {
  if (x.kept.count == 0) return [] {};
  constexpr int kThreads = 128;
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>(ceil_div(x.kept.count, kThreads), 1 << 20));
  const auto *a = static_cast<const T*>(at.in[0]), *b = static_cast<const T*>(at.in[1]);
  const void* addend = at.in.size() > 2 ? at.in[2] : nullptr;
  void* c = at.out[0];
  return [=, stream = as_stream(at.stream)] {
    contract<<<blocks, kThreads, 0, stream>>>(x, a, b, addend, c);
    check_launch("a contraction");
  };
}

}  // namespace

Launch naive_contract_cuda(const std::string& map, const KernelCall& call, const Pointers& at) {
  const Contraction x = contraction_of(map, call);
  CHECK(call.call.inputs[0].dtype == call.call.inputs[1].dtype, "operands have one dtype");
  return with_device_type(call.call.inputs[0].dtype, [&]<class T>() { return prepare<T>(x, at); });
}

}  // namespace adjoint
