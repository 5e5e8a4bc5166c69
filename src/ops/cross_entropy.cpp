// sum = sum over rows of log(sum(exp(logits))) - logits[target], count = rows that are not ignored.
// The loss is this pair: whatever splits a batch adds pairs, and the step divides once. The log of
// the row's sum is kept (one number a row), so the gradient reads the logits once and no
// probabilities are ever stored.
#include "ops/cross_entropy.h"

#include <cmath>

#include "base/error.h"
#include "device/parallel.h"
#include "ops/body_loops.h"
#include "ops/builder.h"
#include "ops/cuda_kernels.h"
#include "ops/elements.h"
#include "ops/samples.h"
#include "ops/surface.h"

namespace adjoint {

namespace {

constexpr int64_t kBlocks = 64;  // partial sums, a number that no thread count changes

std::vector<Type> infer(const OpCall& call) {
  check_cross_entropy_operands(call);
  const Type& logits = call.inputs[0];
  const Dtype sums = logits.dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
  Type lse{.dtype = sums, .axes = logits.axes};
  lse.axes.pop_back();
  return {{sums, {}}, {sums, {}}, lse};
}

void grad(GradCall& g) {
  if (!g.wants[0] || !g.output_grads[0]) return;
  g.input_grads[0] =
      g.builder.emit("cross_entropy_grad", {g.inputs[0], g.inputs[1], g.outputs[2], g.dout(0)},
                     {{"ignore", g.call.integer("ignore", -1)}});
}

constexpr int kLanes = 16;  // of a reduction, whatever the vector width is

// What is left of a row past its last whole vector, filled up with what adds nothing.
struct Tail {
  float x[kLanes];
  ADJOINT_INLINE Tail(const float* from, int64_t n) {
    for (int k = 0; k < kLanes; ++k) x[k] = k < n ? from[k] : -INFINITY;
  }
};

ADJOINT_SIMD float highest_of(const float* x, int64_t n) {
  float lanes[2 * kLanes];  // two vectors of them: one would wait for itself
  for (float& lane : lanes) lane = -INFINITY;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    for (int k = 0; k < 2 * kLanes; ++k) lanes[k] = lanes[k] < x[i + k] ? x[i + k] : lanes[k];
  }
  for (; i < n; i += kLanes) {
    const Tail tail(x + i, n - i);
    for (int k = 0; k < kLanes; ++k) lanes[k] = lanes[k] < tail.x[k] ? tail.x[k] : lanes[k];
  }
  for (int half = kLanes; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k)
      lanes[k] = lanes[k] < lanes[k + half] ? lanes[k + half] : lanes[k];
  }
  return lanes[0];
}

ADJOINT_SIMD double sum_of_exp(const float* x, int64_t n, float shift) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += softmax_exp(x[i + k] - shift);
  }
  if (i < n) {
    const Tail tail(x + i, n - i);
    for (int k = 0; k < kLanes; ++k) lanes[k] += softmax_exp(tail.x[k] - shift);
  }
  double sums[kLanes / 2];
  for (int k = 0; k < kLanes / 2; ++k) sums[k] = double{lanes[k]} + lanes[k + kLanes / 2];
  for (int half = kLanes / 4; half > 0; half /= 2) {
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  }
  return sums[0];
}

// One block at a time: the sum so far is scaled whenever a higher logit comes.
template <class T>
double log_sum_exp(const T* row, int64_t n) {
  double sum = 0;
  float highest = -INFINITY, widened[kClassBlock];
  for (int64_t first = 0; first < n; first += kClassBlock) {
    const int64_t size = std::min(kClassBlock, n - first);
    const float* x = widened;
    if constexpr (std::is_same_v<T, float>) {
      x = row + first;
    } else {
      gather_any(widened, row, kNarrow<T>, first, 1, size);
    }
    const float most = highest_of(x, size);
    if (highest < most) {
      sum *= std::exp(static_cast<double>(highest) - most);
      highest = most;
    }
    sum += sum_of_exp(x, size, highest == -INFINITY ? 0.0f : highest);
  }
  return highest + std::log(sum);
}

double log_sum_exp(const double* x, int64_t n) {
  double highest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; ++i) highest = std::max(highest, x[i]);
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - highest);
  return highest + std::log(sum);
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  const CrossEntropyRows rows(k.call, k.in_strides[0]);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  const Dtype sums = k.outputs[0].dtype;
  auto* partial = static_cast<double*>(at.workspace);
  const Pointers to = at;
  return [=] {
    parallel_for(kBlocks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) {
        double sum = 0, count = 0;
        const int64_t last = rows.count * (block + 1) / kBlocks;
        for (int64_t r = rows.count * block / kBlocks; r < last; ++r) {
          const T* row = logits + r * rows.step;
          const double lse = log_sum_exp(row, rows.classes);
          store_element(to.out[2], sums, r, lse);
          if (targets[r] == rows.ignore) continue;
          const int64_t target = std::clamp<int64_t>(targets[r], 0, rows.classes - 1);
          sum += lse - static_cast<double>(row[target]);
          count += 1;
        }
        partial[2 * block] = sum;
        partial[2 * block + 1] = count;
      }
    });
    double sum = 0, count = 0;
    for (int64_t block = 0; block < kBlocks; ++block) {
      sum += partial[2 * block];
      count += partial[2 * block + 1];
    }
    store_element(to.out[0], sums, 0, sum);
    store_element(to.out[1], sums, 0, count);
  };
}

Launch kernel(const KernelCall& k, const Pointers& at) {
  return with_float_type(k.call.inputs[0].dtype, [&]<class T>() { return prepare<T>(k, at); });
}

// In plain loops, through strides, with nothing subtracted that float64 does not need.
Launch reference(const KernelCall& k, const Pointers& at) {
  const Type logits = k.call.inputs[0], targets = k.call.inputs[1];
  const int64_t classes = logits.dim(-1), step = logits.axes.back().physical();
  const double ignore = static_cast<double>(k.call.integer("ignore", -1));
  const Dtype out = k.outputs[0].dtype;
  return [=] {
    double sum = 0, count = 0;
    for (int64_t r = 0; r < targets.num_elements(); ++r) {
      const auto logit = [&](int64_t c) {
        return load_element(at.in[0], logits.dtype, r * step + c);
      };
      double total = 0;
      for (int64_t c = 0; c < classes; ++c) total += std::exp(logit(c) - logit(0));
      const double lse = std::log(total) + logit(0);
      store_element(at.out[2], out, r, lse);
      const double target = load_element(at.in[1], targets.dtype, r);
      if (target == ignore) continue;
      sum += lse - logit(static_cast<int64_t>(target));
      count += 1;
    }
    store_element(at.out[0], out, 0, sum);
    store_element(at.out[1], out, 0, count);
  };
}

}  // namespace

void check_cross_entropy_operands(const OpCall& call) {
  if (call.inputs.size() < 2) fail(call.op, ": wants logits and targets");
  const Type &logits = call.inputs[0], &targets = call.inputs[1];
  bool fits =
      targets.dtype == Dtype::kI32 && is_float(logits.dtype) && logits.rank() == targets.rank() + 1;
  for (int i = 0; fits && i < targets.rank(); ++i) fits = logits.dim(i) == targets.dim(i);
  if (!fits) {
    fail(call.op, ": targets ", to_string(targets), " do not fit logits ", to_string(logits),
         ": floating logits and one i32 target a row are wanted");
  }
}

CrossEntropyRows::CrossEntropyRows(const OpCall& call, const Strides& strides)
    : count(call.inputs[1].num_elements()),
      classes(call.inputs[0].dim(-1)),
      step(call.inputs[0].axes.back().physical()),
      ignore(call.integer("ignore", -1)) {
  CHECK(strides == dense_strides(call.inputs[0]), "logits are dense");
}

extern const OpDef op_cross_entropy = {
    .name = "cross_entropy",
    .summary =
        "(sum, count) of -log softmax(logits)[target] over rows whose target is not `ignore`",
    .params = {{"logits"}, {"targets"}, {"ignore", Param::Kind::kNumber, "-1"}},
    .surface =
        [](SurfaceCall& call) {
          const double ignore = call.number("ignore");
          if (std::floor(ignore) != ignore || std::abs(ignore) > 0x7fffffff) {
            fail("cross_entropy: ignore must be a whole number that a target can be, found ",
                 ignore);
          }
          const auto made = call.builder.emit_all("cross_entropy",
                                                  {call.tensor("logits"), call.tensor("targets")},
                                                  {{"ignore", static_cast<int64_t>(ignore)}});
          return std::vector<Value>{made[0], made[1]};  // the pair; lse is the gradient's business
        },
    .infer = infer,
    .index_map =
        [](const OpCall& call) {
          const std::string rows = std::string("abcdefgh").substr(0, call.inputs[1].rank());
          return IndexMap{{rows + "v", rows}, {"", "", rows}, "v"};
        },
    .flops = [](const OpCall& call) { return 4 * call.inputs[0].num_elements(); },
    .grad = grad,
    .output_names = {"count", "lse"},
    .wants_dense = true,
    .takes_padding = true,
    .reference = reference,
    .cpu = kernel,
    .cpu_workspace = [](const KernelCall&) { return Bytes{kBlocks * 16}; },
    .cuda = cross_entropy_cuda,
    .cuda_workspace = cross_entropy_cuda_workspace,
    .samples =
        [] {
          const auto at = [](std::vector<int64_t> rows, int64_t classes, int64_t ignore) {
            Type targets = of(rows, Dtype::kI32), logits = of(rows);
            logits.axes.push_back({"v", classes});
            return Sample{.inputs = {logits, targets},
                          .attrs = {{"ignore", ignore}},
                          .fills = {Sample::Fill::kNormal, Sample::Fill::kIds},
                          .ids_below = classes,
                          .ignored_id = ignore};
          };
          return std::vector<Sample>{at({3}, 5, -1), at({2, 3}, 37, -100), at({97}, 2, 1)};
        },
    .refused =
        [] {
          return std::vector<Sample>{{.inputs = {of({3, 5}), of({4}, Dtype::kI32)}},
                                     {.inputs = {of({3, 5}), of({3})}},
                                     {.inputs = {of({3, 5}, Dtype::kI32), of({3}, Dtype::kI32)}}};
        },
};

}  // namespace adjoint
