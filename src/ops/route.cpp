// weights[..., e] = exp(scores[..., e]) / sum of exp over the chosen, where e is chosen, else 0.
// The choice (top_k's) is a constant: dscores = weights * (dweights - sum(dweights * weights)), the
// softmax's gradient, whose zeros keep to the chosen by themselves. An expert that is chosen twice
// counts once.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "device/parallel.h"
#include "ops/builder.h"
#include "ops/cuda_kernels.h"
#include "ops/elements.h"
#include "ops/samples.h"

namespace adjoint {

namespace {

std::vector<Type> infer(const OpCall& call) {
  if (call.inputs.size() != 2) fail("route: wants scores and a choice");
  const Type &scores = call.inputs[0], &choice = call.inputs[1];
  bool fits = is_float(scores.dtype) && choice.dtype == Dtype::kI32 && scores.rank() > 0 &&
              scores.rank() == choice.rank();
  for (int i = 0; fits && i + 1 < scores.rank(); ++i) fits = scores.dim(i) == choice.dim(i);
  if (!fits) {
    fail("route: the choice ", to_string(choice), " does not fit scores ", to_string(scores),
         ": i32 indices into the last axis are wanted, as top_k gives them");
  }
  return {scores};
}

template <class T>
void weigh_row(const T* scores, int64_t n, const int32_t* choice, int64_t k, T* weights) {
  using W = typename Wide<T>::type;
  const auto chosen = [&](int64_t j) { return std::clamp<int64_t>(choice[j], 0, n - 1); };
  const auto is_again = [&](int64_t j) {
    for (int64_t earlier = 0; earlier < j; ++earlier) {
      if (chosen(earlier) == chosen(j)) return true;
    }
    return false;
  };
  W highest = -INFINITY, sum = 0;
  for (int64_t j = 0; j < k; ++j) highest = std::max(highest, static_cast<W>(scores[chosen(j)]));
  for (int64_t j = 0; j < k; ++j) {
    if (!is_again(j)) sum += std::exp(static_cast<W>(scores[chosen(j)]) - highest);
  }
  std::fill(weights, weights + n, static_cast<T>(W{0}));
  for (int64_t j = 0; j < k; ++j) {
    weights[chosen(j)] =
        static_cast<T>(std::exp(static_cast<W>(scores[chosen(j)]) - highest) / sum);
  }
}

template <class T>
Launch prepare(const KernelCall& call, const Pointers& at) {
  const Type &scores = call.call.inputs[0], &choice = call.call.inputs[1];
  CHECK(call.in_strides[0] == dense_strides(scores), "scores are dense");
  CHECK(call.in_strides[1] == dense_strides(choice), "the choice is dense");
  const int64_t n = scores.dim(-1), k = choice.dim(-1), rows = scores.num_elements() / n;
  const int64_t step = scores.axes.back().physical(), choice_step = choice.axes.back().physical();
  const int64_t to_step = call.outputs[0].axes.back().physical();
  const auto* from = static_cast<const T*>(at.in[0]);
  const auto* chosen = static_cast<const int32_t*>(at.in[1]);
  auto* to = static_cast<T*>(at.out[0]);
  return [=] {
    parallel_for(rows, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        weigh_row(from + r * step, n, chosen + r * choice_step, k, to + r * to_step);
      }
    });
  };
}

Launch kernel(const KernelCall& call, const Pointers& at) {
  return with_float_type(call.call.inputs[0].dtype,
                         [&]<class T>() { return prepare<T>(call, at); });
}

// Every expert asks whether it was chosen.
Launch reference(const KernelCall& call, const Pointers& at) {
  const Type scores = call.call.inputs[0], choice = call.call.inputs[1], out = call.outputs[0];
  const int64_t n = scores.dim(-1), k = choice.dim(-1), rows = scores.num_elements() / n;
  const int64_t step = scores.axes.back().physical(), choice_step = choice.axes.back().physical();
  const int64_t to_step = out.axes.back().physical();
  return [=] {
    for (int64_t r = 0; r < rows; ++r) {
      const auto score = [&](int64_t e) {
        return load_element(at.in[0], scores.dtype, r * step + e);
      };
      const auto is_chosen = [&](int64_t e) {
        for (int64_t j = 0; j < k; ++j) {
          const double id = load_element(at.in[1], Dtype::kI32, r * choice_step + j);
          if (id == static_cast<double>(e)) return true;
        }
        return false;
      };
      double highest = -INFINITY, sum = 0;
      for (int64_t e = 0; e < n; ++e) {
        if (is_chosen(e)) highest = std::max(highest, score(e));
      }
      for (int64_t e = 0; e < n; ++e) sum += is_chosen(e) ? std::exp(score(e) - highest) : 0;
      for (int64_t e = 0; e < n; ++e) {
        const double weight = is_chosen(e) ? std::exp(score(e) - highest) / sum : 0;
        store_element(at.out[0], out.dtype, r * to_step + e, weight);
      }
    }
  };
}

void grad(GradCall& g) {
  if (!g.wants[0]) return;
  Body body;
  const Expr dweights = input(body, 0), weights = input(body, 1);
  body.outputs = {{.node = (weights * (dweights - row_sum(dweights * weights))).node,
                   .dtype = g.call.inputs[0].dtype}};
  g.input_grads[0] = g.builder.emit("map", {g.dout(), g.outputs[0]}, {{"body", print(body)}});
}

std::vector<Sample> samples() {
  const auto at = [](std::vector<int64_t> rows, int64_t experts, int64_t k) {
    Type scores = of(rows), choice = of(rows, Dtype::kI32);
    scores.axes.push_back({"experts", experts});
    choice.axes.push_back({"chosen", k});
    return Sample{.inputs = {scores, choice},
                  .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                  .ids_below = experts};
  };
  Sample large = at({5}, 6, 3);
  large.fills[0] = Sample::Fill::kLarge;
  return {at({}, 4, 2), at({7}, 5, 1), at({2, 70}, 8, 3), at({3, 2}, 1, 1), large};
}

}  // namespace

extern const OpDef op_route = {
    .name = "route",
    .summary = "softmax over the chosen of the last axis, 0 elsewhere",
    .params = {{"scores"}, {"choice"}},
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[0].rank() - 1);
          return IndexMap{{rows + "x", rows + "."}, {rows + "x"}, "x"};
        },
    .flops = [](const OpCall& call) { return 4 * call.inputs[1].num_elements(); },
    .grad = grad,
    .constants = {1},
    .one_dtype = true,
    .wants_dense = true,
    .reference = reference,
    .cpu = kernel,
    .cuda = route_cuda,
    .samples = samples,
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({3, 4})}},
                                     {.inputs = {of({3, 4}), of({3, 2})}},
                                     {.inputs = {of({3, 4}), of({2, 2}, Dtype::kI32)}},
                                     {.inputs = {of({3, 4}), of({2}, Dtype::kI32)}}};
        },
};

}  // namespace adjoint
