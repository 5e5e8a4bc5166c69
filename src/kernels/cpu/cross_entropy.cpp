#include <cmath>

#include "base/error.h"
#include "device/parallel.h"
#include "kernels/cpu/body_loops.h"
#include "kernels/cpu/cross_entropy_rows.h"
#include "kernels/row_numbers.h"
#include "scheme/elements.h"

namespace adjoint {

CrossEntropyRows::CrossEntropyRows(const OpCall& call, const Strides& strides)
    : count(call.inputs[1].num_elements()),
      classes(call.inputs[0].dim(-1)),
      step(call.inputs[0].axes.back().physical()),
      ignore(call.integer("ignore", -1)),
      options(cross_entropy_options(call)) {
  CHECK(strides == dense_strides(call.inputs[0]), "logits are dense");
}

ADJOINT_SIMD void soft_cap(float* y, const float* x, int64_t n, float cap) {
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) y[i] = soft_capped(x[i], cap);
}

namespace {

constexpr int64_t kBlocks = 64;  // partial sums, a number that no thread count changes

constexpr int kLanes = 16;  // of a reduction, whatever the vector width is

// The rest of a row after its last whole vector, padded with values that add nothing.
struct Tail {
  float x[kLanes];
  ADJOINT_INLINE Tail(const float* from, int64_t n) {
    for (int k = 0; k < kLanes; ++k) x[k] = k < n ? from[k] : -INFINITY;
  }
};

ADJOINT_SIMD float highest_of(const float* x, int64_t n) {
  float lanes[2 * kLanes];  // two vectors, so that additions do not wait for each other
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

ADJOINT_SIMD double sum_of(const float* x, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += x[i + k];
  }
  double sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += x[i];
  return sum;
}

struct RowSums {
  double lse = 0;
  double logits = 0;  // their sum, where smoothed targets ask for it
};

// One block at a time; the sum so far is rescaled whenever a larger logit appears.
template <class T>
RowSums sums_of_row(const T* row, int64_t n, const CrossEntropyOptions& options) {
  double sum = 0, logits = 0;
  float highest = -INFINITY, widened[kClassBlock];
  for (int64_t first = 0; first < n; first += kClassBlock) {
    const int64_t size = std::min(kClassBlock, n - first);
    const float* x = widened;
    if constexpr (std::is_same_v<T, float>) {
      x = row + first;
    } else {
      gather_any(widened, row, kNarrow<T>, first, 1, size);
    }
    if (options.cap > 0) {
      soft_cap(widened, x, size, static_cast<float>(options.cap));
      x = widened;
    }
    if (options.smoothing > 0) logits += sum_of(x, size);
    const float most = highest_of(x, size);
    if (highest < most) {
      sum *= std::exp(static_cast<double>(highest) - most);
      highest = most;
    }
    sum += sum_of_exp(x, size, highest == -INFINITY ? 0.0f : highest);
  }
  return {highest + std::log(sum), logits};
}

RowSums sums_of_row(const double* x, int64_t n, const CrossEntropyOptions& options) {
  const auto logit = [&](int64_t i) {
    return options.cap > 0 ? soft_capped(x[i], options.cap) : x[i];
  };
  double highest = -INFINITY, sum = 0, logits = 0;
  for (int64_t i = 0; i < n; ++i) highest = std::max(highest, logit(i));
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logit(i) - highest);
  for (int64_t i = 0; options.smoothing > 0 && i < n; ++i) logits += logit(i);
  return {highest + std::log(sum), logits};
}

// Of a row that counts. Without options it is the log-sum less the target's logit, to the bit.
template <class T>
double loss_of_row(const CrossEntropyRows& rows, const RowSums& sums, T target) {
  const CrossEntropyOptions& o = rows.options;
  if (!o.any()) return sums.lse - static_cast<double>(target);
  using W = typename Wide<T>::type;
  auto logit = static_cast<W>(target);
  if (o.cap > 0) logit = soft_capped(logit, static_cast<W>(o.cap));
  const double smooth = o.smoothing > 0 ? rows.share() * sums.logits : 0;
  return sums.lse - (1 - o.smoothing) * static_cast<double>(logit) - smooth +
         o.z * sums.lse * sums.lse;
}

template <class T>
Launch prepare(const KernelCall& k, const Pointers& at) {
  const CrossEntropyRows rows(k.call, k.in_strides[0]);
  const auto* logits = static_cast<const T*>(at.in[0]);
  const auto* targets = static_cast<const int32_t*>(at.in[1]);
  const Dtype sums = k.outputs[0].dtype;
  const RowNumbers log_sums(k.outputs[2]);
  auto* partial = static_cast<double*>(at.workspace);
  const Pointers to = at;
  return [=] {
    parallel_for(kBlocks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t block = begin; block < end; ++block) {
        double sum = 0, count = 0;
        const int64_t last = rows.count * (block + 1) / kBlocks;
        for (int64_t r = rows.count * block / kBlocks; r < last; ++r) {
          const T* row = logits + r * rows.step;
          const RowSums of_row = sums_of_row(row, rows.classes, rows.options);
          store_element(to.out[2], sums, log_sums.at(r), of_row.lse);
          if (targets[r] == rows.ignore) continue;
          const int64_t target = std::clamp<int64_t>(targets[r], 0, rows.classes - 1);
          sum += loss_of_row(rows, of_row, row[target]);
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

}  // namespace

extern const Kernel cpu_cross_entropy = {
    .op = "cross_entropy",
    .prepare = kernel,
    .workspace = [](const KernelCall&) { return Bytes{kBlocks * 16}; },
};

}  // namespace adjoint
