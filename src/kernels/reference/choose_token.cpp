// Every token by itself: its share, its place in the order, and what comes before it.
#include "ops/choose_token.h"

#include <algorithm>
#include <cmath>

#include "kernels/kernel.h"
#include "scheme/elements.h"

namespace adjoint {

namespace {

int32_t drawn(const std::vector<double>& logits, const std::vector<double>& choice) {
  const int64_t n = static_cast<int64_t>(logits.size());
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isnan(logits[i])) order.push_back(i);
  }
  if (order.empty()) return 0;
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  const auto best = static_cast<int32_t>(order[0]);
  if (!(choice[0] > 0)) return best;
  std::vector<double> share(n, 0);  // whole numbers below 2^53
  for (const int64_t i : order) {
    const double below = logits[i] == logits[best] ? 0 : (logits[i] - logits[best]) / choice[0];
    share[i] = below >= kLeastLogit ? std::nearbyint(std::exp(below) * kWholeShare) : 0;
  }
  size_t kept = order.size();
  if (choice[1] >= 1) kept = static_cast<size_t>(std::min<double>(std::floor(choice[1]), kept));
  if (choice[2] < 1) {
    double all = 0, before = 0;
    for (size_t i = 0; i < kept; ++i) all += share[order[i]];
    size_t enough = 0;
    while (enough < kept && (enough == 0 || before < choice[2] * all)) {
      before += share[order[enough++]];
    }
    kept = enough;
  }
  order.resize(kept);
  std::erase_if(order, [&](int64_t i) {
    return share[i] < std::min(1.0, choice[3]) * kWholeShare || share[i] == 0;
  });
  std::sort(order.begin(), order.end());
  double all = 0, sum = 0;
  for (const int64_t i : order) all += share[i];
  const double wanted = std::floor(std::clamp(choice[4], 0.0, 1 - 0x1p-24) * all);
  for (const int64_t i : order) {
    sum += share[i];
    if (sum > wanted) return static_cast<int32_t>(i);
  }
  return best;
}

Launch reference(const KernelCall& k, const Pointers& at) {
  const Type logits = k.call.inputs[0], choice = k.call.inputs[1];
  const int64_t usable = usable_tokens(k.call), rows = logits.dim(0) * logits.dim(1);
  return [=] {
    for (int64_t row = 0; row < rows; ++row) {
      const auto numbers = [](const void* from, const Type& type, int64_t which, int64_t count) {
        std::vector<double> numbers;
        for (int64_t i = 0; i < count; ++i) {
          numbers.push_back(
              load_element(from, type.dtype, which * type.axes.back().physical() + i));
        }
        return numbers;
      };
      const int32_t token = drawn(numbers(at.in[0], logits, row, usable),
                                  numbers(at.in[1], choice, row / logits.dim(1), kChoiceNumbers));
      static_cast<int32_t*>(at.out[0])[row] = token;
    }
  };
}

}  // namespace

extern const Kernel reference_choose_token = {
    .op = "choose_token",
    .prepare = reference,
};

}  // namespace adjoint
