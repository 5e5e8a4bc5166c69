// dlogits = dsum * (exp(logits - lse) - onehot(target)), 0 on ignored rows. May take the logits'
// place.
#include <cmath>

#include "base/error.h"
#include "device/parallel.h"
#include "ops/body_loops.h"
#include "ops/builder.h"
#include "ops/cross_entropy.h"
#include "ops/cuda_kernels.h"
#include "ops/elements.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  check_cross_entropy_operands(call);
  if (call.inputs.size() != 4) {
    fail("cross_entropy_grad: wants logits, targets, lse and the gradient of the sum, found ",
         call.inputs.size(), " operands");
  }
  const Type &logits = call.inputs[0], &lse = call.inputs[2], &dsum = call.inputs[3];
  const Dtype wide = logits.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  const Type wanted = with_dtype(call.inputs[1], wide);
  if (!same_shape(lse, wanted) || lse.dtype != wide) {
    fail("cross_entropy_grad: the log-sums of logits ", to_string(logits), " are ",
         to_string(wanted), ", found ", to_string(lse));
  }
  if (dsum.rank() != 0 || !is_float(dsum.dtype)) {
    fail("cross_entropy_grad: the gradient of the sum is one floating number, found ",
         to_string(dsum));
  }
  return {logits};
}

// y may be x.
ADJOINT_SIMD void scaled_softmax(float* y, const float* x, int64_t n, float lse, float scale) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) y[i] = scale * softmax_exp(x[i] - lse);
}
template <class T>
void scaled_softmax(T* y, const T* x, int64_t n, float lse, float scale) {
  float block[kClassBlock];
  for (int64_t first = 0; first < n; first += kClassBlock) {
    const int64_t size = std::min(kClassBlock, n - first);
    gather_any(block, x, kNarrow<T>, first, 1, size);
    scaled_softmax(block, block, size, lse, scale);
    scatter_any(y, kNarrow<T>, block, first, 1, size);
  }
}
void scaled_softmax(double* y, const double* x, int64_t n, double lse, double scale) {
  for (int64_t i = 0; i < n; ++i) y[i] = scale * std::exp(x[i] - lse);
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  const CrossEntropyRows rows(k.call, k.in_strides[0]);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  const Dtype lse_dtype = k.call.inputs[2].dtype, scale_dtype = k.call.inputs[3].dtype;
  const void *lse = at.in[2], *dsum = at.in[3];
  auto* out = static_cast<T*>(at.out[0]);
  return [=] {
    const double scale = load_element(dsum, scale_dtype, 0);
    parallel_for(rows.count, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        T* y = out + r * rows.step;
        if (targets[r] == rows.ignore) {
          std::fill(y, y + rows.classes, T(0.0f));
          continue;
        }
        using W = typename Wide<T>::type;
        const T* x = logits + r * rows.step;
        const int64_t target = std::clamp<int64_t>(targets[r], 0, rows.classes - 1);
        const double row_lse = load_element(lse, lse_dtype, r);
        // Of 16 bits, p - 1 must be taken before p is rounded: near 1 nothing would be left of it.
        const double hit = scale * (std::exp(static_cast<double>(x[target]) - row_lse) - 1);
        scaled_softmax(y, x, rows.classes, static_cast<W>(row_lse), static_cast<W>(scale));
        if constexpr (std::is_same_v<T, W>) {
          y[target] -= static_cast<W>(scale);
        } else {
          y[target] = T(static_cast<float>(hit));
        }
      }
    });
  };
}

Launch kernel(const KernelCall& k, const Pointers& at) {
  return with_float_type(k.call.inputs[0].dtype, [&]<class T>() { return prepare<T>(k, at); });
}

Launch reference(const KernelCall& k, const Pointers& at) {
  const Type logits = k.call.inputs[0], targets = k.call.inputs[1];
  const int64_t classes = logits.dim(-1), step = logits.axes.back().physical();
  const double ignore = static_cast<double>(k.call.integer("ignore", -1));
  const Dtype lse_dtype = k.call.inputs[2].dtype, scale_dtype = k.call.inputs[3].dtype;
  return [=] {
    for (int64_t r = 0; r < targets.num_elements(); ++r) {
      const double target = load_element(at.in[1], targets.dtype, r);
      const double lse = load_element(at.in[2], lse_dtype, r);
      const double scale = target == ignore ? 0 : load_element(at.in[3], scale_dtype, 0);
      for (int64_t c = 0; c < classes; ++c) {
        const double p = std::exp(load_element(at.in[0], logits.dtype, r * step + c) - lse);
        const double hit = static_cast<double>(c) == target;
        store_element(at.out[0], logits.dtype, r * step + c, scale * (p - hit));
      }
    }
  };
}

}  // namespace

extern const OpDef op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .summary = "the gradient of cross_entropy's logits",
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[1].rank());
          return IndexMap{{rows + "v", rows, rows, ""}, {rows + "v"}, "v"};
        },
    .flops = [](const OpCall& call) { return 3 * call.inputs[0].num_elements(); },
    .differentiable = false,
    .wants_dense = true,
    .takes_padding = true,
    .may_overwrite = {{0, 0}},
    .reference = reference,
    .cpu = kernel,
    .cuda = cross_entropy_grad_cuda,
    .samples =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({3}, Dtype::kI32), of({3}), of({})},
               .attrs = {{"ignore", int64_t{-1}}},
               .fills = {Sample::Fill::kNormal, Sample::Fill::kIds, Sample::Fill::kPositive},
               .ids_below = 5}};
        },
    .refused =
        [] {
          const Type targets = of({3}, Dtype::kI32);
          return std::vector<Sample>{
              {.inputs = {of({3, 5}), of({4}, Dtype::kI32), of({3}), of({})}},
              {.inputs = {of({3, 5}), targets, of({3})}},
              {.inputs = {of({3, 5}), targets, of({2}), of({})}},
              {.inputs = {of({3, 5}), targets, of({3}, Dtype::kBF16), of({})}},
              {.inputs = {of({3, 5}, Dtype::kBF16), targets, of({3}, Dtype::kBF16), of({})}},
              {.inputs = {of({3, 5}), targets, of({3}), of({}, Dtype::kI32)}},
              {.inputs = {of({3, 5}), targets, of({3}), of({3})}}};
        },
};

}  // namespace adjoint
