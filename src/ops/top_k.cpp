// choice[..., j] = where the j-th largest of scores[..., :] stands; of equals the lower index comes
// first, and what is not a number comes last, so that k different indices come out of any row. The
// choice is discrete: no gradient passes through it, and a step makes it once (Effect::kChoosing).
#include <cmath>

#include "base/error.h"
#include "device/parallel.h"
#include "ops/cuda_kernels.h"
#include "ops/elements.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 1 || call.inputs[0].rank() < 1 || !is_float(call.inputs[0].dtype)) {
    fail("top_k: wants one operand of floating scores with at least one axis");
  }
  Type choice = call.inputs[0];
  const Axis from = choice.axes.back();
  const int64_t k = call.integer("k");
  if (k < 1 || k > from.size) {
    fail("top_k: k must be from 1 to ", from.name, "=", from.size, ", found ", k);
  }
  choice.dtype = Dtype::kI32;
  choice.axes.back() = {"chosen", k};
  return {choice};
}

// The order of a row: larger first, NaN after every number, then by index.
template <class W>
bool comes_before(W a, int64_t at_a, W b, int64_t at_b) {
  if (a > b) return true;
  if (b > a) return false;
  if (std::isnan(a) != std::isnan(b)) return std::isnan(b);
  return at_a < at_b;
}

// Each turn takes the first of those that come after the one before: n comparisons a choice, and
// nothing to remember.
template <class T>
void choose_row(const T* scores, int64_t n, int32_t* choice, int64_t k) {
  using W = typename Wide<T>::type;
  for (int64_t j = 0; j < k; ++j) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; ++i) {
      const W score = static_cast<W>(scores[i]);
      if (j > 0) {
        const int64_t previous = choice[j - 1];
        if (!comes_before(static_cast<W>(scores[previous]), previous, score, i)) continue;
      }
      if (best < 0 || comes_before(score, i, static_cast<W>(scores[best]), best)) best = i;
    }
    choice[j] = static_cast<int32_t>(best);
  }
}

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  const Type& scores = call.call.inputs[0];
  CHECK(call.in_strides[0] == dense_strides(scores), "scores are dense");
  const int64_t n = scores.dim(-1), step = scores.axes.back().physical();
  const int64_t k = call.call.integer("k"), rows = scores.num_elements() / n;
  const auto* from = static_cast<const T*>(at.in[0]);
  auto* to = static_cast<int32_t*>(at.out[0]);
  return [=] {
    parallel_for(rows, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) choose_row(from + r * step, n, to + r * k, k);
    });
  };
}

Launch kernel(const KernelCall& call, const Pointers& at) {
  return with_float_type(call.call.inputs[0].dtype,
                         [&]<class T>() { return prepare<T>(call, at); });
}

// Every element counts those that come before it; its count is its place.
Launch reference(const KernelCall& call, const Pointers& at) {
  const Type scores = call.call.inputs[0];
  const int64_t n = scores.dim(-1), step = scores.axes.back().physical();
  const int64_t k = call.call.integer("k"), rows = scores.num_elements() / n;
  return [=] {
    for (int64_t r = 0; r < rows; ++r) {
      const auto score = [&](int64_t i) {
        const double x = load_element(at.in[0], scores.dtype, r * step + i);
        return std::isnan(x) ? -INFINITY : x;
      };
      const auto is_nan = [&](int64_t i) {
        return std::isnan(load_element(at.in[0], scores.dtype, r * step + i));
      };
      for (int64_t i = 0; i < n; ++i) {
        int64_t place = 0;
        for (int64_t other = 0; other < n; ++other) {
          const bool larger = score(other) > score(i) || (is_nan(i) && !is_nan(other));
          const bool equal = score(other) == score(i) && is_nan(i) == is_nan(other);
          place += larger || (equal && other < i);
        }
        if (place < k) store_element(at.out[0], Dtype::kI32, r * k + place, static_cast<double>(i));
      }
    }
  };
}

std::vector<Sample> samples() {
  const auto at = [](std::vector<int64_t> sizes, int64_t k) {
    return Sample{.inputs = {of(std::move(sizes))}, .attrs = {{"k", k}}};
  };
  Sample ties = at({5, 7}, 4);
  ties.fills = {Sample::Fill::kLarge};  // four values in all
  return {at({8}, 2), at({3, 5}, 5), at({2, 70, 6}, 1), at({4, 1}, 1), ties};
}

}  // namespace

extern const OpDef op_top_k = {
    .name = "top_k",
    .summary = "where the k largest of the last axis stand, the largest first",
    .params = {{"scores"}, {"k", Param::Kind::kSize}},
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[0].rank() - 1);
          return IndexMap{{rows + "x"}, {rows + "."}, "x"};
        },
    .flops = [](const OpCall& call) { return call.inputs[0].num_elements() * call.integer("k"); },
    .differentiable = false,
    .effect = Effect::kChoosing,
    .wants_dense = true,
    .reference = reference,
    .cpu = kernel,
    .cuda = top_k_cuda,
    .samples = samples,
    .refused =
        [] {
          return std::vector<Sample>{
              {.inputs = {of({3, 4})}, .attrs = {{"k", int64_t{5}}}},
              {.inputs = {of({3, 4})}, .attrs = {{"k", int64_t{0}}}},
              {.inputs = {of({3, 4}, Dtype::kI32)}, .attrs = {{"k", int64_t{1}}}},
              {.inputs = {of({})}, .attrs = {{"k", int64_t{1}}}}};
        },
};

}  // namespace adjoint
